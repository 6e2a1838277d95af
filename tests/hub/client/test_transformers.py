"""transformers and peft with a hub of ours as HF_ENDPOINT: from_pretrained and push_to_hub, of tiny models."""

import json
from pathlib import Path

from tests.hub.shared_hub import shared_hub

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


def test_models_tokenizers_and_adapters_that_were_pushed_are_loaded_as_they_were(tmp_path: Path) -> None:
    with shared_hub(tmp_path) as shared:
        results = json.loads(shared.run(PROGRAM, "bob").splitlines()[-1])
    for what in ("model", "tokenizer", "adapter", "changed", "revision"):
        assert results[what], what
    weights = [path for path in results["files"] if path.endswith((".bin", ".pt", ".safetensors"))]
    assert weights == ["model.safetensors"]
    assert {"peft", "safetensors"} <= set(results["tags"])
