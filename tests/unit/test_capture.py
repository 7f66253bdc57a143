"""Capture from Hugging Face models: tiny random ones of each family, made here, never downloaded."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codesign.errors import InputFileError, UsageError
from codesign.traces.capture import capture, prompts_from
from codesign.traces.native import save_trace
from codesign.traces.readers.registry import read_trace

torch = pytest.importorskip("torch", reason="capture needs the extra `capture`: torch is not installed")
transformers = pytest.importorskip("transformers", reason="capture needs the extra `capture`")
tokenizers = pytest.importorskip("tokenizers", reason="comes with transformers")

TEXT = "def area(width, height):\n    return width * height  # of a rectangle\n" * 8
EXPERTS, TOP_K, WIDTH = 8, 2, 16
SHAPE: dict[str, Any] = {
    "vocab_size": 257,
    "hidden_size": WIDTH,
    "intermediate_size": 12,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "num_experts_per_tok": TOP_K,
    "initializer_range": 0.5,  # wide: choices must not hang on rounding
    "pad_token_id": None,
    "bos_token_id": 256,
    "eos_token_id": 256,
}
FAMILIES: dict[str, tuple[str, dict[str, Any], list[int]]] = {
    "olmoe": ("Olmoe", {"num_experts": EXPERTS}, [0, 1, 2, 3]),
    "mixtral": ("Mixtral", {"num_local_experts": EXPERTS}, [0, 1, 2, 3]),
    "qwen2-moe": (
        "Qwen2Moe",
        {
            "num_experts": EXPERTS,
            "moe_intermediate_size": 12,
            "shared_expert_intermediate_size": 12,
            "decoder_sparse_step": 2,
        },
        [1, 3],
    ),
    "qwen3-moe": (
        "Qwen3Moe",
        {
            "num_experts": EXPERTS,
            "moe_intermediate_size": 12,
            "head_dim": 8,
            "norm_topk_prob": True,
            "mlp_only_layers": [0],
        },
        [1, 2, 3],
    ),
}
RUN: dict[str, Any] = {
    "num_sequences": 3,
    "prompt_tokens": 9,
    "decode_tokens": 5,
    "lookahead": 2,
    "guesses": 4,
}


def save_random_model(
    folder: Path, class_prefix: str, extra: dict[str, Any], suffix: str = "ForCausalLM"
) -> Path:
    torch.manual_seed(1)
    config = getattr(transformers, f"{class_prefix}Config")(**SHAPE, **extra)
    getattr(transformers, f"{class_prefix}{suffix}")(config).save_pretrained(folder)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    bytewise = tokenizers.Tokenizer(
        tokenizers.models.BPE({letter: i for i, letter in enumerate(alphabet)}, [])
    )
    bytewise.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = tokenizers.decoders.ByteLevel()
    bytewise.add_special_tokens(["<|file|>"])
    fast = transformers.PreTrainedTokenizerFast
    fast(tokenizer_object=bytewise, bos_token="<|file|>", eos_token="<|file|>").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=FAMILIES, ids=list(FAMILIES))
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[int]]:
    torch.set_num_threads(1)
    prefix, extra, layers = FAMILIES[request.param]
    return save_random_model(tmp_path_factory.mktemp(request.param), prefix, extra), layers


@pytest.fixture(scope="module")
def olmoe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return save_random_model(tmp_path_factory.mktemp("olmoe"), *FAMILIES["olmoe"][:2])


def whole_sequences(folder: Path, token_ids_ST: np.ndarray) -> tuple[Any, list[np.ndarray], list[np.ndarray]]:
    """The model run again without cache and without our hooks: (model, router logits and gate inputs per layer)."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    blocks = [layer.mlp for layer in model.model.layers if hasattr(layer.mlp, "experts")]
    states: list[np.ndarray] = []
    for block in blocks:
        block.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0].reshape(-1, WIDTH).numpy()))
    with torch.inference_mode():
        output = model(torch.from_numpy(token_ids_ST).long(), use_cache=False, output_router_logits=True)
    logits = [layer.numpy() for layer in output.router_logits if layer is not None]
    assert len(logits) == len(blocks) == len(states)
    return [block.gate for block in blocks], logits, states


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def test_experts_and_weights_are_the_top_k_of_the_models_own_router_logits(
    family: tuple[Path, list[int]],
) -> None:
    folder, layers = family
    trace = capture(folder, TEXT, **RUN)
    assert trace.layer_ids_L.tolist() == layers
    assert (trace.num_experts, trace.top_k, trace.num_tokens) == (EXPERTS, TOP_K, 3 * (9 + 5))
    gates, logits, _ = whole_sequences(folder, trace.token_ids_T.reshape(3, 14))
    for layer, rows in enumerate(logits):
        probability = softmax(rows)
        expected = np.argsort(-probability, 1)[:, :TOP_K]
        np.testing.assert_array_equal(trace.experts_TLK[:, layer], expected)
        weights = np.take_along_axis(probability, expected, 1)
        if getattr(gates[layer], "norm_topk_prob", type(gates[layer]).__name__.startswith("Mixtral")):
            weights /= weights.sum(1, keepdims=True)
        # half precision keeps 11 bits
        np.testing.assert_allclose(trace.weights_TLK[:, layer], weights, rtol=2**-10, atol=1e-6)


def test_a_guess_is_the_later_gate_applied_to_the_earlier_gates_input(family: tuple[Path, list[int]]) -> None:
    folder, layers = family
    trace = capture(folder, TEXT, **RUN)
    gates, _, states = whole_sequences(folder, trace.token_ids_T.reshape(3, 14))
    assert trace.predicted_TLHM.shape == (42, len(layers), 2, 4)
    for layer in range(len(layers)):
        for ahead in range(2):
            guess, score = trace.predicted_TLHM[:, layer, ahead], trace.predicted_scores_TLHM[:, layer, ahead]
            if layer + ahead + 1 >= len(layers):
                assert (guess == -1).all()
                assert (score == 0).all()
                continue
            gate = gates[layer + ahead + 1].weight.detach().numpy()
            probability = softmax(states[layer] @ gate.T)
            expected = np.argsort(-probability, 1)[:, :4]
            np.testing.assert_array_equal(guess, expected)
            np.testing.assert_allclose(
                score, np.take_along_axis(probability, expected, 1), rtol=2**-10, atol=1e-6
            )


def test_a_selection_bias_decides_who_is_chosen_but_not_the_score(tmp_path: Path) -> None:
    extra = {
        "n_routed_experts": EXPERTS, "n_shared_experts": 1, "moe_intermediate_size": 12, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1, "q_lora_rank": None, "kv_lora_rank": 8, "qk_rope_head_dim": 4,
        "qk_nope_head_dim": 4, "v_head_dim": 8,
    }  # fmt: skip
    folder = save_random_model(tmp_path / "deepseek", "DeepseekV3", extra)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    for layer in model.model.layers[1:]:
        layer.mlp.gate.e_score_correction_bias[5] = 10.0  # so expert 5 is always chosen
    model.save_pretrained(folder)
    trace = capture(folder, TEXT, **RUN)
    assert trace.layer_ids_L.tolist() == [1, 2, 3]
    assert (trace.experts_TLK == 5).any(axis=2).all()
    assert (trace.predicted_TLHM[:, 0, :, 0] == 5).all()
    scores = trace.predicted_scores_TLHM[:, 0]
    assert (scores <= 1).all()
    assert (scores[..., 0] < scores.max(axis=-1)).any()


def test_a_prompt_is_one_pass_and_each_decoded_token_its_own(olmoe: Path) -> None:
    trace = capture(olmoe, TEXT, **RUN)
    assert trace.sequence_start_S.tolist() == [0, 14, 28]
    one = [True] * 9 + [False] * 5
    assert trace.is_prefill_T.tolist() == one * 3
    steps = [
        step for sequence in range(3) for step in [6 * sequence] * 9 + [6 * sequence + i for i in range(1, 6)]
    ]
    assert trace.step_id_T.tolist() == steps
    assert not trace.synthetic
    assert olmoe.name in trace.model


def test_a_captured_trace_is_saved_and_read_back_the_same(olmoe: Path, tmp_path: Path) -> None:
    trace = capture(olmoe, TEXT, **RUN)
    assert trace.experts_TLK.dtype == np.int8
    save_trace(trace, tmp_path / "a trace.safetensors")
    again = read_trace(tmp_path / "a trace.safetensors")
    for name in (
        "experts_TLK",
        "weights_TLK",
        "predicted_TLHM",
        "predicted_scores_TLHM",
        "token_ids_T",
        "step_id_T",
    ):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))


def test_the_seed_decides_prompts_and_decoded_tokens(olmoe: Path) -> None:
    first, same, other = (capture(olmoe, TEXT, **RUN, seed=seed).token_ids_T for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()


def test_the_end_token_is_never_drawn_and_a_prompt_is_a_piece_of_the_text(olmoe: Path) -> None:
    run = RUN | {"decode_tokens": 300, "num_sequences": 1}
    ids = capture(olmoe, TEXT, **run).token_ids_T
    assert 256 not in ids
    tokenizer = transformers.AutoTokenizer.from_pretrained(olmoe)
    assert tokenizer.decode(ids[:9]) in TEXT


def test_guesses_are_never_fewer_than_top_k_and_never_more_than_there_are_experts(olmoe: Path) -> None:
    assert capture(olmoe, TEXT, **RUN | {"guesses": 1}).predicted_TLHM.shape[3] == TOP_K
    assert capture(olmoe, TEXT, **RUN | {"guesses": 99}).predicted_TLHM.shape[3] == EXPERTS
    assert capture(olmoe, TEXT, **RUN | {"lookahead": 0}).predicted_TLHM is None


def test_prompts_do_not_overlap_and_a_beginning_token_stands_before_each(olmoe: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(olmoe)
    prompts = prompts_from(tokenizer, ["abcdefghij", "klmnop"], 5, 3, np.random.default_rng(0))
    assert sorted(tokenizer.decode(prompt) for prompt in prompts) == ["abc", "def", "ghi", "klm", "nop"]

    class WithBeginning:
        bos_token_id = 7

        def __call__(self, text: str, **options: Any) -> Any:
            ids = [ord(letter) for letter in text]
            return transformers.BatchEncoding({"input_ids": ids if options else [7, *ids]})

    [prompt] = prompts_from(WithBeginning(), ["ab"], 1, 3, np.random.default_rng(0))
    assert prompt.tolist() == [7, 97, 98]


def test_a_dense_model_is_refused_by_name(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, "Llama", {})
    with pytest.raises(UsageError, match="LlamaForCausalLM has no mixture-of-experts layer"):
        capture(folder, TEXT, **RUN)


def test_a_text_that_is_too_short_says_how_many_prompts_it_holds(olmoe: Path) -> None:
    with pytest.raises(
        UsageError, match=r"room for 1 prompts of 9 tokens \(10 tokens in all\), 3 were asked for"
    ):
        capture(olmoe, "0123456789", **RUN)


def test_text_files_are_read_and_bad_ones_are_named(olmoe: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "gut – ä.txt", tmp_path / "bad.txt"
    good.write_text(TEXT, encoding="utf-8")
    bad.write_bytes(b"abc\xff")
    trace = capture(olmoe, [good], **RUN)
    np.testing.assert_array_equal(trace.token_ids_T, capture(olmoe, TEXT, **RUN).token_ids_T)
    assert good.name in trace.source
    with pytest.raises(UsageError, match=r"bad.txt: byte 3: not UTF-8"):
        capture(olmoe, [good, bad], **RUN)
    with pytest.raises(InputFileError, match="no such file"):
        capture(olmoe, tmp_path / "absent.txt", **RUN)


def test_a_folder_without_a_model_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read a language model"):
        capture(tmp_path, TEXT, **RUN)


@pytest.mark.parametrize("name", ["num_sequences", "prompt_tokens", "decode_tokens", "lookahead", "guesses"])
def test_a_count_below_its_least_is_refused_before_any_model_is_read(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} must be at least [01], got -1"):
        capture("no-such-model", TEXT, **RUN | {name: -1})


def test_without_transformers_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "transformers":
            raise ModuleNotFoundError("No module named 'transformers'", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'codesign-workbench\[capture\]'"):
        capture("any", TEXT, **RUN)
