"""Tiny models of the architectures that the selectors read from the hub, made by the tests, with tokenizers and labels.

The checkers are taught the pairs that every checker is tried on when it is loaded, until they have them by heart;
that takes about a second and gives models that depend on the order of a pair and on every word of it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kcard.selectors.checkers import PROBES

WORDS = " ".join(text for probe in PROBES for text in probe) + (
    " Ann won the race in Oregon . Bob lost it Yes No OPTIONS I think the answer is Choose your based on paragraph "
    "above can we conclude that Determine if hypothesis true given premise Premise Hypothesis Knowledge of and a"
)
VITAMINC = {0: "SUPPORTS", 1: "REFUTES", 2: "NOT ENOUGH INFO"}
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "initializer_range": 0.2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
}


def empty_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model of the developer's own cache is found, here or in programs that the test starts."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))


def tokenizer(folder: Path, style: str, limit: int = 512) -> Any:
    """A byte-level tokenizer that frames pairs in a `style`: bert ([CLS] a [SEP] b [SEP]), roberta, t5 or pegasus."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    start, end, pad, unknown = _special(style)
    base = Tokenizer(models.BPE(unk_token=unknown))
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    base.decoder = decoders.ByteLevel()
    special = [pad, end, unknown] if style in {"t5", "pegasus"} else [start, pad, end, unknown]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    base.train_from_iterator(
        [WORDS] * 2,
        trainers.BpeTrainer(
            vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        ),
    )
    ids = [(token, base.token_to_id(token)) for token in dict.fromkeys((start, end))]
    pair = {
        "bert": f"{start} $A {end} $B:1 {end}:1",
        "roberta": f"{start} $A {end} {end} $B {end}",
    }.get(style, f"$A {end} $B {end}")
    single = f"$A {end}" if style in {"t5", "pegasus"} else f"{start} $A {end}"
    base.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
    names = (
        ["input_ids", "token_type_ids", "attention_mask"]
        if style == "bert"
        else ["input_ids", "attention_mask"]
    )
    found = PreTrainedTokenizerFast(
        tokenizer_object=base, bos_token=start, cls_token=start, eos_token=end, sep_token=end, pad_token=pad,
        unk_token=unknown, model_max_length=limit, model_input_names=names,
    )  # fmt: skip
    found.save_pretrained(folder)
    return found


def _special(style: str) -> tuple[str, str, str, str]:
    if style == "bert":
        return "[CLS]", "[SEP]", "<pad>", "<unk>"
    if style in {"t5", "pegasus"}:
        return "<pad>", "</s>", "<pad>", "<unk>"
    return "<s>", "</s>", "<pad>", "<unk>"


def classifier(
    folder: Path,
    architecture: str,
    labels: Mapping[int, str],
    pairs: Sequence[tuple[str, ...]],
    targets: Sequence[int],
    positions: int = 514,
) -> Path:
    """A sequence classifier of `architecture` that has learnt the label of each text or pair of texts."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    torch.manual_seed(0)
    style = "roberta" if architecture == "roberta" else "bert"
    words = tokenizer(folder, style, positions - 2)
    sizes = SIZES | {"albert": {"embedding_size": 16}, "roberta": {"type_vocab_size": 1}}.get(
        architecture, {}
    )
    if architecture == "deberta-v2":
        sizes = sizes | {
            "relative_attention": True, "position_buckets": 32, "pos_att_type": ["p2c", "c2p"],
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True, "position_biased_input": False, "type_vocab_size": 0, "max_relative_positions": -1,
            "pooler_hidden_size": 32, "pooler_dropout": 0.0,
        }  # fmt: skip
    config = AutoConfig.for_model(
        architecture, vocab_size=len(words), max_position_embeddings=positions, pad_token_id=words.pad_token_id,
        id2label=dict(labels), label2id={name: i for i, name in labels.items()}, **sizes,
    )  # fmt: skip
    model = AutoModelForSequenceClassification.from_config(config)
    texts = [list(column) for column in zip(*pairs, strict=True)]
    taught(model, words(*texts, padding=True, return_tensors="pt"), targets)
    model.save_pretrained(folder)
    return folder


def taught(model: Any, inputs: Mapping[str, Any], targets: Sequence[int], first: bool = False) -> None:
    """Teach the model the targets until it has them; `first`: they are those of each row's first token."""
    import torch

    wanted = torch.tensor(list(targets))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(300):
        logits = model(**inputs).logits
        logits = logits[:, 0] if first else logits
        loss = torch.nn.functional.cross_entropy(logits, wanted)
        if loss < 0.02:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1, f"the tiny model did not learn: {loss:.2f}"
    model.eval()


def probes(claim_first: bool = False) -> tuple[list[tuple[str, ...]], list[bool]]:
    """The pairs that checkers are tried on, and whether each is supported."""
    found = [(evidence, claim, True) for evidence, claim, _ in PROBES]
    found += [(evidence, claim, False) for evidence, _, claim in PROBES]
    pairs: list[tuple[str, ...]]
    pairs = [(claim, evidence) if claim_first else (evidence, claim) for evidence, claim, _ in found]
    return pairs, [supported for *_, supported in found]


def vitaminc(folder: Path, labels: Mapping[int, str] = VITAMINC, positions: int = 514) -> Path:
    """ALBERT that reads evidence, then claim. Turned round, a pair is not enough information."""
    pairs, supported = probes()
    turned = [(claim, evidence) for evidence, claim in pairs]
    place = {name: i for i, name in VITAMINC.items()}
    targets = [place["SUPPORTS"] if s else place["REFUTES"] for s in supported]
    return classifier(
        folder,
        "albert",
        labels,
        [*pairs, *turned],
        [*targets, *[place["NOT ENOUGH INFO"]] * len(turned)],
        positions,
    )


def nli(folder: Path) -> Path:
    """DeBERTa-v2 with the labels of NLI in their usual order: supported is place 2. Turned round, a pair is neutral."""
    pairs, supported = probes()
    turned = [(claim, evidence) for evidence, claim in pairs]
    targets = [*(2 if s else 0 for s in supported), *[1] * len(turned)]
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    return classifier(folder, "deberta-v2", names, [*pairs, *turned], targets)


def factkb(folder: Path, pickled: bool = False) -> Path:
    """RoBERTa that reads the claim, then the evidence; place 1 is factual. Turned round, nothing is factual."""
    pairs, supported = probes(claim_first=True)
    turned = [(evidence, claim) for claim, evidence in pairs]
    targets = [*map(int, supported), *[0] * len(turned)]
    classifier(folder, "roberta", {0: "LABEL_0", 1: "LABEL_1"}, [*pairs, *turned], targets)
    if pickled:
        import torch
        from safetensors.torch import load_file

        weights = folder / "model.safetensors"
        torch.save(load_file(weights), folder / "pytorch_model.bin")
        weights.unlink()
    return folder


def factcg(folder: Path, template: str) -> Path:
    """DeBERTa-v2 that reads one prompt; place 1 is yes."""
    pairs, supported = probes()
    texts = [(template.format(evidence=evidence, claim=claim),) for evidence, claim in pairs]
    return classifier(folder, "deberta-v2", {0: "LABEL_0", 1: "LABEL_1"}, texts, list(map(int, supported)))


def hhem(folder: Path, template: str) -> Path:
    """T5's encoder with a token classifier, saved as HHEM is: names begin with t5., the config is of no known kind."""
    import json

    import torch
    from safetensors.torch import save_file
    from transformers import T5Config, T5ForTokenClassification

    torch.manual_seed(0)
    base = folder / "flan-t5-base"
    words = tokenizer(base, "t5")
    config = T5Config(
        vocab_size=len(words), d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, dropout_rate=0.0,
        pad_token_id=words.pad_token_id, initializer_factor=1.0,
    )  # fmt: skip
    model = T5ForTokenClassification(config)
    pairs, supported = probes()
    texts = [template.format(evidence=evidence, claim=claim) for evidence, claim in pairs]
    taught(model, words(texts, padding=True, return_tensors="pt"), list(map(int, supported)), first=True)
    weights = {f"t5.{name}": value.clone() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    config.save_pretrained(base)
    own = {
        "model_type": "HHEMv2",
        "auto_map": {"AutoModelForSequenceClassification": "modeling_hhem_v2.Model"},
    }
    (folder / "config.json").write_text(json.dumps(own), encoding="utf-8")
    return folder


def mpnet(folder: Path) -> Path:
    """MPNet, a plain encoder, with its tokenizer."""
    import torch
    from transformers import MPNetConfig, MPNetModel

    torch.manual_seed(0)
    words = tokenizer(folder, "roberta")
    sizes = {key: value for key, value in SIZES.items() if key != "classifier_dropout_prob"}
    config = MPNetConfig(
        vocab_size=len(words), max_position_embeddings=514, pad_token_id=words.pad_token_id, **sizes
    )
    MPNetModel(config).save_pretrained(folder)
    return folder


def modernbert(folder: Path) -> Path:
    """ModernBERT as sentence-transformers saves it: the first token's state, at unit length (as granite's)."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from transformers import ModernBertConfig, ModernBertModel

    torch.manual_seed(0)
    plain = folder / "plain"
    words = tokenizer(plain, "bert")
    words.model_input_names = ["input_ids", "attention_mask"]
    words.save_pretrained(plain)
    config = ModernBertConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=512, pad_token_id=words.pad_token_id, bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id, cls_token_id=words.cls_token_id, sep_token_id=words.sep_token_id,
    )  # fmt: skip
    ModernBertModel(config).save_pretrained(plain)
    whole = folder / "whole"
    modules = [Transformer(str(plain)), Pooling(32, "cls"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(whole))
    return whole


def pegasus(folder: Path) -> Path:
    """Pegasus, untrained: what it writes is noise, but it writes."""
    import torch
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    torch.manual_seed(0)
    words = tokenizer(folder, "pegasus")
    config = PegasusConfig(
        vocab_size=len(words), d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=128,
        pad_token_id=words.pad_token_id, eos_token_id=words.eos_token_id, decoder_start_token_id=words.pad_token_id,
        init_std=0.5,
    )  # fmt: skip
    model = PegasusForConditionalGeneration(config)
    model.generation_config.num_beams = 2
    model.save_pretrained(folder)
    return folder
