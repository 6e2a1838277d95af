"""Export the embedded networks as ONNX graphs: python -m recipes.graphs.export [--output src/kcard/embedded/graphs]

A graph contains only the computation. Its weights are external initialisers, named as in the checkpoints, which
kcard.embedded.networks supplies when it loads the network: all-MiniLM-L6-v2 from its package, kcard's own from its
files. Four networks share MiniLM's transformer (Wang et al., 2020), differ in their heads, and read one row of tokens:

encoder   a sentence embedding, the mean over token states (Reimers and Gurevych, 2019)
reader    start, end, evidence and relevance of a passage for a question
ranker    which of many passages to read, by three layers
checker   supports, refutes or neither, of a claim and its evidence

`memory` is the small OPT that answers widely known questions, with keys and values of earlier tokens as inputs.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from kcard.embedded.networks import GRAPHS
from kcard.embedded.reader import LAYERS as RANKER_LAYERS

WIDTH, LAYERS, HEADS, INNER = 384, 6, 12, 1536
VOCABULARY, POSITIONS = 30522, 512
PARTS = ("query", "key", "value")
HIDDEN = 128  # of the checker's head
FAR = -1e4  # a logit of what can't be chosen
# The embedded memory's shape: src/kcard/embedded/weights/memory/config.json.
MEMORY_WIDTH, MEMORY_LAYERS, MEMORY_HEADS, MEMORY_VOCABULARY, MEMORY_POSITIONS = 128, 4, 2, 3000, 160
OPSET, MICROSOFT_OPSET, IR_VERSION = 20, 1, 10


Linear = Callable[[str, str, int, int], str]


class Graph:
    """Collects the nodes of one graph; every method that adds some returns the name of their output."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}

    def op(
        self, kind: str, *inputs: str, domain: str = "", outputs: Sequence[str] = (), **attributes: Any
    ) -> str:
        """One operator of ONNX, or of another domain."""
        names = list(outputs) or [f"{kind.lower()}_{len(self.nodes)}"]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names[0]

    def constant(self, value: Sequence[int] | float) -> str:
        """A number, float32, or whole numbers, int64."""
        array = np.asarray(value, np.float32 if isinstance(value, float) else np.int64)
        name = f"constant_{'_'.join(map(str, array.reshape(-1)))}_{array.ndim}"
        self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def weight(self, name: str, *shape: int, kind: int = TensorProto.FLOAT) -> str:
        """A weight that whoever loads the graph supplies."""
        tensor = TensorProto(name=name, data_type=kind, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="supplied")
        self.initializers[name] = tensor
        return name

    def linear(self, states: str, name: str, width: int, outputs: int) -> str:
        """A linear layer; its weight has shape (outputs, width), as in torch, so that it is used where it lies."""
        weight = self.weight(f"{name}.weight", outputs, width)
        product = self.op("FusedMatMul", states, weight, domain="com.microsoft", transB=1)
        return self.op("Add", product, self.weight(f"{name}.bias", outputs))

    def linear8(self, states: str, name: str, width: int, outputs: int) -> str:
        """The same with weights in steps of 7 bits, (width, outputs), and states that are rounded to 8 bits.

        Sums of two products of 7 and 8 bits fit into 16 bits, in which processors without VNNI add them up.
        """
        steps = self.weight(f"{name}.weight.steps", width, outputs, kind=TensorProto.INT8)
        scale, bias = self.weight(f"{name}.weight.scale", outputs), self.weight(f"{name}.bias", outputs)
        return self.op("DynamicQuantizeMatMul", states, steps, scale, "", bias, domain="com.microsoft")

    def norm(self, states: str, name: str, width: int, epsilon: float) -> str:
        scale, shift = self.weight(f"{name}.weight", width), self.weight(f"{name}.bias", width)
        return self.op("LayerNormalization", states, scale, shift, axis=-1, epsilon=epsilon)

    def mean(self, states: str, mask: str) -> str:
        """The mean of states (1, t, d) over the tokens whose mask (1, t), float32, is 1: (1, d)."""
        total = self.op("MatMul", self.op("Unsqueeze", mask, self.constant([1])), states)
        count = self.op("Max", self.op("ReduceSum", mask, self.constant([1]), keepdims=1), self.constant(1.0))
        return self.op("Div", self.op("Squeeze", total, self.constant([1])), count)

    def model(
        self, name: str, inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, list[Any]]
    ) -> Any:
        """The whole; `inputs`: element type and shape."""
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(key, kind, shape) for key, (kind, shape) in inputs.items()],
            [helper.make_tensor_value_info(key, TensorProto.FLOAT, shape) for key, shape in outputs.items()],
            initializer=list(self.initializers.values()),
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", MICROSOFT_OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="kcard")


PAIR: dict[str, tuple[int, list[Any]]] = {name: (TensorProto.INT32, [1, "t"]) for name in ("ids", "types")}


def transformer(graph: Graph, linear: Linear, layers: int = LAYERS) -> str:
    """MiniLM's states, (1, t, 384), of `ids` and `types`; of the first `layers` alone."""
    epsilon = 1e-12
    words = graph.op("Gather", graph.weight("embeddings.word_embeddings.weight", VOCABULARY, WIDTH), "ids")
    types = graph.op("Gather", graph.weight("embeddings.token_type_embeddings.weight", 2, WIDTH), "types")
    length = graph.op("Shape", "ids", start=1, end=2)
    table = graph.weight("embeddings.position_embeddings.weight", POSITIONS, WIDTH)
    places = graph.op("Slice", table, graph.constant([0]), length, graph.constant([0]))
    states = graph.op("Add", graph.op("Add", words, types), places)
    states = graph.norm(states, "embeddings.LayerNorm", WIDTH, epsilon)
    for number in range(layers):
        layer = f"encoder.layer.{number}"
        parts = [linear(states, f"{layer}.attention.self.{part}", WIDTH, WIDTH) for part in PARTS]
        mixed = graph.op("MultiHeadAttention", *parts, domain="com.microsoft", num_heads=HEADS)
        mixed = linear(mixed, f"{layer}.attention.output.dense", WIDTH, WIDTH)
        states = graph.norm(
            graph.op("Add", mixed, states), f"{layer}.attention.output.LayerNorm", WIDTH, epsilon
        )
        inner = graph.op("Gelu", linear(states, f"{layer}.intermediate.dense", WIDTH, INNER))
        outer = linear(inner, f"{layer}.output.dense", INNER, WIDTH)
        states = graph.norm(graph.op("Add", outer, states), f"{layer}.output.LayerNorm", WIDTH, epsilon)
    return states


def first_and_most(graph: Graph, states: str, inside: str) -> str:
    """The state of [CLS] and the highest ones of the tokens whose `inside`, (1, t), bool, is true: (1, 768)."""
    inside = graph.op("Unsqueeze", inside, graph.constant([-1]))
    inside_states = graph.op("Where", inside, states, graph.constant(FAR))
    most = graph.op("ReduceMax", inside_states, graph.constant([1]), keepdims=0)
    return graph.op("Concat", graph.op("Gather", states, graph.constant(0), axis=1), most, axis=-1)


def encoder() -> Any:
    """`vectors`, (1, 384), of unit length: the mean over the states."""
    graph = Graph()
    mean = graph.op("ReduceMean", transformer(graph, graph.linear), graph.constant([1]), keepdims=0)
    length = graph.op("ReduceL2", mean, graph.constant([-1]), keepdims=1)
    graph.op("Div", mean, length, outputs=["vectors"])
    return graph.model("encoder", PAIR, {"vectors": [1, WIDTH]})


def reader() -> Any:
    """`spans`, (1, t, 3), logits of start, end and evidence; `relevance`, (1, 1).

    The text of a pair is what has type 1, but for the last token.
    """
    graph = Graph()
    states = transformer(graph, graph.linear8)
    graph.op("Identity", graph.linear(states, "heads.tokens", WIDTH, 3), outputs=["spans"])
    # The text's tokens: type 1, and a token of type 1 behind them.
    marks = graph.op("Cast", "types", to=TensorProto.BOOL)
    behind = graph.op("Slice", "types", graph.constant([1]), graph.constant([POSITIONS]), graph.constant([1]))
    behind = graph.op("Pad", behind, graph.constant([0, 0, 0, 1]))
    inside = graph.op("And", marks, graph.op("Cast", behind, to=TensorProto.BOOL))
    pooled = graph.linear(first_and_most(graph, states, inside), "heads.pooled", 2 * WIDTH, WIDTH)
    pair = graph.linear(graph.op("Tanh", pooled), "heads.pair", WIDTH, 1)
    graph.op("Identity", pair, outputs=["relevance"])
    return graph.model("reader", PAIR, {"spans": [1, "t", 3], "relevance": [1, 1]})


def ranker() -> Any:
    """`scores`, (1, 1), of [CLS] and the highest states of what has type 1."""
    graph = Graph()
    states = transformer(graph, graph.linear8, RANKER_LAYERS)
    inside = graph.op("Cast", "types", to=TensorProto.BOOL)
    score = graph.linear(first_and_most(graph, states, inside), "head", 2 * WIDTH, 1)
    graph.op("Identity", score, outputs=["scores"])
    return graph.model("ranker", PAIR, {"scores": [1, 1]})


def checker() -> Any:
    """`labels`, (1, 3), probabilities; type 1 marks the claim."""
    graph = Graph()
    states = transformer(graph, graph.linear)
    marks = graph.op("Cast", "types", to=TensorProto.FLOAT)
    claim, evidence = (
        graph.mean(states, marks),
        graph.mean(states, graph.op("Sub", graph.constant(1.0), marks)),
    )
    first = graph.op("Gather", states, graph.constant(0), axis=1)
    apart = graph.op("Abs", graph.op("Sub", claim, evidence))
    features = graph.op("Concat", first, claim, apart, axis=-1)
    hidden = graph.op("Tanh", graph.linear(features, "hidden", 3 * WIDTH, HIDDEN))
    graph.op("Softmax", graph.linear(hidden, "output", HIDDEN, 3), axis=-1, outputs=["labels"])
    return graph.model("checker", PAIR, {"labels": [1, 3]})


def memory() -> Any:
    """`logits`, (1, t, 3000), of `ids`, (1, t), at `positions`, (1, t), behind keys and values of earlier tokens."""
    graph, epsilon, size = Graph(), 1e-5, MEMORY_WIDTH // MEMORY_HEADS
    table = graph.weight("embed_tokens.weight", MEMORY_VOCABULARY, MEMORY_WIDTH)
    # The first two rows of OPT's position table are never used.
    places = graph.weight("embed_positions.weight", MEMORY_POSITIONS + 2, MEMORY_WIDTH)
    positions = graph.op("Add", "positions", graph.constant(2))
    states = graph.op("Add", graph.op("Gather", table, "ids"), graph.op("Gather", places, positions))
    inputs: dict[str, tuple[int, list[Any]]] = {
        name: (TensorProto.INT64, [1, "t"]) for name in ("ids", "positions")
    }
    outputs: dict[str, list[Any]] = {"logits": [1, "t", MEMORY_VOCABULARY]}
    for number in range(MEMORY_LAYERS):
        layer = f"layers.{number}"
        inner = graph.norm(states, f"{layer}.self_attn_layer_norm", MEMORY_WIDTH, epsilon)
        query, key, value = (
            graph.linear(inner, f"{layer}.self_attn.{part}_proj", MEMORY_WIDTH, MEMORY_WIDTH)
            for part in "qkv"
        )
        past, present = (
            [f"{when}_{part}.{number}" for part in ("key", "value")] for when in ("past", "present")
        )
        inputs |= {name: (TensorProto.FLOAT, [1, MEMORY_HEADS, "p", size]) for name in past}
        outputs |= {name: [1, MEMORY_HEADS, "p+t", size] for name in present}
        mixed = graph.op(
            "MultiHeadAttention",
            *(query, key, value, "", "", "", *past),
            domain="com.microsoft",
            outputs=[f"attention_{number}", *present],
            num_heads=MEMORY_HEADS,
            unidirectional=1,
        )
        states = graph.op(
            "Add", states, graph.linear(mixed, f"{layer}.self_attn.out_proj", MEMORY_WIDTH, MEMORY_WIDTH)
        )
        inner = graph.norm(states, f"{layer}.final_layer_norm", MEMORY_WIDTH, epsilon)
        inner = graph.op("Relu", graph.linear(inner, f"{layer}.fc1", MEMORY_WIDTH, 4 * MEMORY_WIDTH))
        states = graph.op("Add", states, graph.linear(inner, f"{layer}.fc2", 4 * MEMORY_WIDTH, MEMORY_WIDTH))
    states = graph.norm(states, "final_layer_norm", MEMORY_WIDTH, epsilon)
    graph.op("MatMul", states, graph.op("Transpose", table, perm=[1, 0]), outputs=["logits"])
    return graph.model("memory", inputs, outputs)


NETWORKS = {"encoder": encoder, "reader": reader, "ranker": ranker, "checker": checker, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=GRAPHS)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name, make in NETWORKS.items():
        model = make()
        (options.output / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))
        print(f"{options.output / name}.onnx: {len(model.graph.node)} operators")


if __name__ == "__main__":
    main()
