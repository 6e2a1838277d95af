"""Publishing to a hub elsewhere: one commit, one tag, also with push_to_hub, and again where it was interrupted."""

import io
import json
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

import kcard
from kcard.api.hub import credentials, login
from kcard.errors import HubError, UsageError
from kcard.hub.client.transfer import PublishedVersion
from kcard.hub.server.dependencies import ServerOptions
from kcard.manifest import MANIFEST, Training, seal
from tests.command import Kcard
from tests.hub.client.cards import rivers
from tests.hub.shared_hub import Shared, shared_hub


@pytest.fixture
def bob(shared: Shared) -> HfApi:
    """bob is logged in."""
    login(shared.url, shared.tokens["bob"])
    return shared.api("bob")


def publish(shared: Shared, folder: Path, repository: str | None = None, *aliases: str) -> PublishedVersion:
    there: PublishedVersion = kcard.publish(folder, hub=shared.url, repository=repository, aliases=aliases)
    return there


def test_a_card_becomes_one_commit_with_its_files_and_the_tag_v1(
    shared: Shared, bob: HfApi, tmp_path: Path
) -> None:
    card = rivers(tmp_path / "card", domain="earth/water")
    (tmp_path / "card" / "notes.txt").write_text("not sealed")
    there = publish(shared, card.folder)
    assert there.reference == "bob/rivers@v1"
    assert set(bob.list_repo_files("bob/rivers")) == {*card.manifest.files, MANIFEST, ".gitattributes"}
    titles = [commit.title for commit in bob.list_repo_commits("bob/rivers")]
    assert titles == [f"rivers {there.sha256[:12]}", "initial commit"]
    refs = bob.list_repo_refs("bob/rivers")
    assert [(tag.name, tag.target_commit) for tag in refs.tags] == [("v1", there.commit)]
    info = bob.model_info("bob/rivers")
    assert {"kcard", "knowledge-card", "earth", "water"} <= set(info.tags or [])
    assert (info.library_name, info.pipeline_tag) == ("bm25s", "text-ranking")
    repository = shared.hub.repositories.get("model", "bob/rivers")
    assert [(p.tag, p.version) for p in shared.hub.publications.list(repository)] == [("v1", there.sha256)]


def test_the_same_card_again_is_the_same_version(shared: Shared, bob: HfApi, tmp_path: Path) -> None:
    one = rivers(tmp_path / "one")
    two = rivers(tmp_path / "two", "The Rhine is long.")
    first, second = publish(shared, one.folder, "bob/again"), publish(shared, two.folder, "bob/again")
    assert (first.number, second.number) == (1, 2)
    assert not first.unchanged
    again = publish(shared, one.folder, "bob/again")
    assert again == first
    assert again.unchanged
    assert publish(shared, two.folder, "bob/again") == second
    assert len(bob.list_repo_commits("bob/again")) == 3


def test_files_of_the_version_before_are_gone_from_main(shared: Shared, bob: HfApi, tmp_path: Path) -> None:
    card = rivers(tmp_path / "one")
    (card.folder / "extra.txt").write_text("more")
    seal(card.folder, card.manifest)
    publish(shared, card.folder, "bob/fewer")
    (card.folder / "extra.txt").unlink()
    seal(card.folder, card.manifest)
    publish(shared, card.folder, "bob/fewer")
    assert "extra.txt" in bob.list_repo_files("bob/fewer", revision="v1")
    assert "extra.txt" not in bob.list_repo_files("bob/fewer")


def test_an_alias_is_a_branch_that_moves(shared: Shared, bob: HfApi, tmp_path: Path) -> None:
    one = rivers(tmp_path / "one")
    two = rivers(tmp_path / "two", "The Rhine is long.")
    first = publish(shared, one.folder, "bob/named", "stable")
    second = publish(shared, two.folder, "bob/named", "newest")
    assert branches(bob, "bob/named").items() >= {"stable": first.commit, "newest": second.commit}.items()
    publish(shared, two.folder, "bob/named", "stable")
    assert branches(bob, "bob/named")["stable"] == second.commit
    with pytest.raises(UsageError, match="main"):
        publish(shared, one.folder, "bob/named", "main")


def branches(api: HfApi, repository: str) -> dict[str, str]:
    return {branch.name: branch.target_commit for branch in api.list_repo_refs(repository).branches}


def test_what_was_interrupted_before_its_tag_is_published_by_doing_it_again(
    shared: Shared, bob: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = rivers(tmp_path / "card")
    with monkeypatch.context() as broken:

        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        broken.setattr(HfApi, "create_tag", interrupt)
        with pytest.raises(KeyboardInterrupt):
            publish(shared, card.folder, "bob/interrupted")
    assert not bob.list_repo_refs("bob/interrupted").tags
    assert publish(shared, card.folder, "bob/interrupted").number == 1
    assert len(bob.list_repo_commits("bob/interrupted")) == 2


def test_a_number_that_somebody_took_meanwhile_is_left_to_them(
    shared: Shared, bob: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_tag, others = HfApi.create_tag, list[str]()

    def late(self: HfApi, repo_id: str, **options: str) -> None:
        if not others:
            others.append(options["tag"])
            add = [CommitOperationAdd("theirs.txt", b"theirs")]
            bob.create_branch(repo_id, branch="theirs", revision=options["revision"])
            bob.create_commit(repo_id, add, commit_message="Theirs", revision="theirs")
            bob.delete_file(MANIFEST, repo_id, revision="theirs")
            head = bob.model_info(repo_id, revision="theirs").sha
            create_tag(bob, repo_id, tag=options["tag"], revision=head)
        create_tag(self, repo_id, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(HfApi, "create_tag", late)
    assert publish(shared, rivers(tmp_path / "card").folder, "bob/raced").number == 2
    assert others == ["v1"]


def test_main_may_move_while_a_card_is_uploaded(
    shared: Shared, bob: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_commit, moved = HfApi.create_commit, list[int]()

    def slow(self: HfApi, repo_id: str, operations: object, **options: object) -> object:
        if not moved:
            moved.append(1)
            add = [CommitOperationAdd("theirs.txt", b"theirs")]
            create_commit(bob, repo_id, add, commit_message="Faster")
        return create_commit(self, repo_id, operations, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(HfApi, "create_commit", slow)
    publish(shared, rivers(tmp_path / "card").folder, "bob/moved")
    assert "theirs.txt" not in bob.list_repo_files("bob/moved")


@pytest.mark.usefixtures("bob")
def test_who_may_not_write_there_is_told_so(shared: Shared, tmp_path: Path) -> None:
    with pytest.raises(HubError, match=r"refused \(403\)"):
        publish(shared, rivers(tmp_path / "card").folder, "dan/rivers")
    credentials().store(shared.url, shared.tokens["bob:read"])
    with pytest.raises(HubError, match=r"refused \(403\)"):
        publish(shared, rivers(tmp_path / "card").folder, "bob/readonly")


@pytest.mark.usefixtures("bob")
def test_a_name_that_is_taken_in_another_case_is_refused(shared: Shared, tmp_path: Path) -> None:
    card = rivers(tmp_path / "card")
    publish(shared, card.folder, "bob/cased")
    with pytest.raises(HubError, match="bob/Cased already exists as bob/cased"):
        publish(shared, card.folder, "bob/Cased")


def test_nothing_is_sent_where_nobody_is_logged_in(shared: Shared, tmp_path: Path) -> None:
    with pytest.raises(HubError, match="kcard login --hub http"):
        publish(shared, rivers(tmp_path / "card").folder, "bob/unknown")


def test_a_quota_that_is_used_up_is_told_in_the_hubs_words(shared: Shared, tmp_path: Path) -> None:
    login(shared.url, shared.tokens["cleo"])
    shared.hub.accounts.update("cleo", quota=100)
    with pytest.raises(HubError, match=r"refused \((413|507)\).*(quota|hold)") as error:
        publish(shared, rivers(tmp_path / "card").folder)
    assert "\n" not in str(error.value)


def test_the_same_checks_come_first_as_for_the_local_hub(shared: Shared, bob: HfApi, tmp_path: Path) -> None:
    card = rivers(tmp_path / "card", "Write to ada@analytical.org.", name="leaking")
    with pytest.raises(HubError, match="private data"):
        kcard.publish(card, hub=shared.url, strict=True)
    with pytest.raises(HubError, match="exam"):
        kcard.publish(card, hub=shared.url, min_recall=0.5)
    assert not bob.repo_exists("bob/leaking")


@pytest.mark.usefixtures("bob")
def test_the_command_publishes_and_says_where(
    shared: Shared, kcard: Kcard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = rivers(tmp_path / "card")
    command = ["publish", card.folder, "--repository", "bob/typed"]
    output = json.loads(kcard(*command, "--hub", shared.url, "--json").out)
    assert (output["repository"], output["number"]) == ("bob/typed", 1)
    assert output["url"] == f"{shared.url}/bob/typed"
    assert "--hub URL" in kcard(*command).error
    monkeypatch.setenv("KCARD_HUB_URL", shared.url)
    assert kcard(*command).out.startswith("bob/typed@v1  ")
    assert "rivers@v1" in kcard("publish", card.folder, "--hub", "local").out


def test_a_new_repository_is_as_visible_as_the_operator_decided_and_the_command_says_so(
    kcard: Kcard, tmp_path: Path
) -> None:
    card = rivers(tmp_path / "card")
    with shared_hub(tmp_path / "hub", ServerOptions(visibility="private")) as hub:
        login(hub.url, hub.tokens["bob"])
        there = ("--hub", hub.url, "--repository")
        done = kcard("publish", card.folder, *there, "bob/unsaid")
        assert "bob/unsaid is private: those who may read your namespace can see it" in done.err
        assert hub.api("bob").model_info("bob/unsaid").private
        done = kcard("publish", card.folder, *there, "bob/open", "--public")
        assert "bob/open is public: everyone who can reach the hub can see it" in done.err
        assert "can see it" not in kcard("publish", card.folder, *there, "bob/open").err  # unchanged


@pytest.mark.parametrize("is_remote", [False, True])
def test_other_texts_become_the_next_version_of_a_name_with_a_warning_and_a_question(
    shared: Shared, kcard: Kcard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    login(shared.url, shared.tokens["bob"])
    where = ("--hub", shared.url, "--repository", "bob/lakes") if is_remote else ("--hub", "local")
    reference = "bob/lakes" if is_remote else "lakes"
    one = corpus_card(tmp_path / "one", "The Aral Sea is a lake.", "a" * 64)
    two = corpus_card(tmp_path / "two", "Vulcan is a planet.", "b" * 64)
    next_ = corpus_card(tmp_path / "next", "The Aral Sea was a lake.", "c" * 64, updates="d" * 64)
    assert "other texts" not in kcard("publish", one, *where).err
    assert "other texts" not in kcard("publish", next_, *where).err
    warning = f"{reference}@v2 was made of other texts"
    with monkeypatch.context() as terminal:
        terminal.setattr("sys.stdin", io.StringIO("n\n"))
        terminal.setattr("sys.stdin.isatty", lambda: True)
        refused = kcard("publish", two, *where)
        assert warning in refused.err
        assert "lakes is not published" in refused.err
        assert refused.code != 0
        terminal.setattr("sys.stdin", io.StringIO("y\n"))
        terminal.setattr("sys.stdin.isatty", lambda: True)
        assert f"{reference}@v3" in kcard("publish", two, *where).out
    assert "other texts" in kcard("publish", corpus_card(tmp_path / "z", "Z.", "e" * 64), *where, "--yes").err


def test_a_tag_that_is_of_no_card_does_not_keep_a_card_from_being_published(
    shared: Shared, bob: HfApi, tmp_path: Path
) -> None:
    bob.create_repo("bob/tagged")
    bob.create_tag("bob/tagged", tag="v1")
    assert publish(shared, rivers(tmp_path / "card").folder, "bob/tagged").number == 2


def corpus_card(folder: Path, text: str, digest: str, **fields: object) -> Path:
    training = Training(corpus_sha256=digest, passages=1)
    return rivers(folder, text, name="lakes", training=training, **fields).folder


# transformers and peft with a hub of ours as HF_ENDPOINT: from_pretrained and push_to_hub, of tiny models.


# One process for all of it: most of its time goes into importing the libraries.
PROGRAM = """
import json, sys
import torch
from huggingface_hub import HfApi
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, OPTConfig, OPTForCausalLM, PreTrainedTokenizerFast

words = Tokenizer(models.WordLevel(unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.train_from_iterator(["The Rhine rises in the Alps"], trainers.WordLevelTrainer(special_tokens=["<unk>", "<pad>"]))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", pad_token="<pad>")
torch.manual_seed(0)
sizes = dict(hidden_size=16, ffn_dim=32, num_hidden_layers=1, num_attention_heads=2, word_embed_proj_dim=16)
model = OPTForCausalLM(OPTConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes)).eval()
asked = tokenizer("The Rhine rises", return_tensors="pt")["input_ids"]

def written(by):
    with torch.no_grad():
        return by(input_ids=asked).logits

results = {}
model.push_to_hub("bob/base")
tokenizer.push_to_hub("bob/base")
found = AutoModelForCausalLM.from_pretrained("bob/base").eval()
results["model"] = bool(torch.equal(written(found), written(model)))
again = AutoTokenizer.from_pretrained("bob/base")
results["tokenizer"] = again("The Rhine rises")["input_ids"] == tokenizer("The Rhine rises")["input_ids"]

settings = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
adapted = get_peft_model(found, settings).eval()
adapted.push_to_hub("bob/adapter", private=True)
base = AutoModelForCausalLM.from_pretrained("bob/base").eval()
loaded = PeftModel.from_pretrained(base, "bob/adapter").eval()
results["adapter"] = bool(torch.equal(written(loaded), written(adapted)))
results["changed"] = not bool(torch.equal(written(loaded), written(model)))

api = HfApi()
api.create_tag("bob/base", tag="first")
with torch.no_grad():
    model.lm_head.weight.mul_(2)
model.push_to_hub("bob/base", commit_message="Doubled")
results["revision"] = not bool(torch.equal(
    written(AutoModelForCausalLM.from_pretrained("bob/base", revision="first").eval()),
    written(AutoModelForCausalLM.from_pretrained("bob/base").eval()),
))
results["files"] = api.list_repo_files("bob/base")
results["tags"] = api.model_info("bob/adapter").tags
print(json.dumps(results))
"""


@pytest.mark.slow
def test_models_tokenizers_and_adapters_that_were_pushed_are_loaded_as_they_were(tmp_path: Path) -> None:
    with shared_hub(tmp_path) as shared:
        results = json.loads(shared.run(PROGRAM, "bob").splitlines()[-1])
    for what in ("model", "tokenizer", "adapter", "changed", "revision"):
        assert results[what], what
    weights = [path for path in results["files"] if path.endswith((".bin", ".pt", ".safetensors"))]
    assert weights == ["model.safetensors"]
    assert {"peft", "safetensors"} <= set(results["tags"])
