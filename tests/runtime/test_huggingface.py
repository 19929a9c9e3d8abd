"""`GrammarLogitsProcessor`: driven as `generate` drives it, and by `generate` itself on a tiny random model."""

import json
import random
import warnings
from typing import Any

import pytest

from gramary.compiler import Compiler, MatcherError, Tokenizer
from gramary.runtime import GrammarLogitsProcessor

torch = pytest.importorskip("torch", reason="torch is not installed")

END = 256
WIDTH = 257


def scores_for(rows: int, seed: int = 0) -> Any:
    return torch.rand(rows, WIDTH, generator=torch.Generator().manual_seed(seed))


def allowed(scores: Any) -> list[set[int]]:
    return [set(torch.isfinite(row).nonzero().flatten().tolist()) for row in scores]


def text_of(tokens: list[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode()


def test_rows_follow_what_they_hold_when_beams_are_reordered(byte_compiler: Compiler) -> None:
    """Random beams over two prompts: each row's mask is that of a fresh matcher fed with the row's tokens."""
    grammars = [
        byte_compiler.compile_regex("(ab|ac|b[0-9])*x"),
        byte_compiler.compile_regex("[0-9]{1,3}(,[0-9]{1,3})*"),
    ]
    processor = GrammarLogitsProcessor(grammars)
    draw = random.Random(5)
    for _ in range(5):
        sequences = [[7, 8]] * 3 + [[9, 9]] * 3
        for _ in range(30):
            masked = processor(torch.tensor(sequences), scores_for(6))
            fed = []
            for i, sequence in enumerate(sequences):
                matcher = grammars[i // 3].matcher()
                assert matcher.accept_tokens(sequence[2:]) == len(sequence) - 2
                fed.append({token for token in range(WIDTH) if matcher.fork().accept_token(token)})
            assert allowed(masked) == fed
            following = []
            for i in range(6):  # any beam of the same prompt, with any allowed token but the end
                parent = draw.randrange(i // 3 * 3, i // 3 * 3 + 3)
                following.append([*sequences[parent], draw.choice(sorted(fed[parent] - {END}) or [END])])
            if any(END in sequence for sequence in following):
                break
            sequences = following
        processor.reset()


def test_it_masks_a_copy_and_keeps_padding_out(byte_compiler: Compiler) -> None:
    processor = GrammarLogitsProcessor(byte_compiler.compile_regex("a"))
    scores = torch.zeros(1, WIDTH + 40)
    assert allowed(processor(torch.tensor([[1]]), scores)) == [{ord("a")}]
    assert torch.isfinite(scores).all()


def test_a_second_call_begins_anew(byte_compiler: Compiler) -> None:
    """With the same prompt, with another one, with another batch, and with the first one's output as its prompt."""
    processor = GrammarLogitsProcessor(byte_compiler.compile_regex("abc"))
    start = [{ord("a")}]
    assert allowed(processor(torch.tensor([[1, 2]]), scores_for(1))) == start
    assert allowed(processor(torch.tensor([[1, 2, ord("a")]]), scores_for(1))) == [{ord("b")}]
    assert allowed(processor(torch.tensor([[1, 2]]), scores_for(1))) == start
    assert allowed(processor(torch.tensor([[3, 2, 1]]), scores_for(1))) == start
    assert allowed(processor(torch.tensor([[3, 2, 1]] * 2), scores_for(2))) == start * 2
    ids = [5]
    for token in [*b"abc", END]:
        processor(torch.tensor([ids]), scores_for(1))
        ids = [*ids, token]
    processor(torch.tensor([ids]), scores_for(1))  # what generate does not do: ask again after the end
    assert allowed(processor(torch.tensor([ids]), scores_for(1))) == start


def test_finished_rows_are_left_alone(byte_compiler: Compiler) -> None:
    processor = GrammarLogitsProcessor(byte_compiler.compile_regex("a{1,2}"))
    processor(torch.tensor([[1], [1]]), scores_for(2))
    processor(torch.tensor([[1, ord("a")]] * 2), scores_for(2))
    masked = processor(torch.tensor([[1, ord("a"), END], [1, ord("a"), ord("a")]]), scores_for(2))
    assert allowed(masked) == [set(range(WIDTH)), {END}]
    masked = processor(torch.tensor([[1, ord("a"), END, 0], [1, ord("a"), ord("a"), END]]), scores_for(2))
    assert allowed(masked) == [set(range(WIDTH))] * 2


def test_a_token_forced_against_the_mask_is_an_error(byte_compiler: Compiler) -> None:
    processor = GrammarLogitsProcessor(byte_compiler.compile_regex("abc"))
    processor(torch.tensor([[1]]), scores_for(1))
    with pytest.raises(MatcherError, match="overrides the mask"):
        processor(torch.tensor([[1, ord("z")]]), scores_for(1))


def test_a_beam_of_no_worth_gets_no_token(byte_compiler: Compiler) -> None:
    """Beam search fills up with forbidden tokens where fewer are allowed than it has beams."""
    processor = GrammarLogitsProcessor(byte_compiler.compile_regex("abc"))
    processor(torch.tensor([[1], [1]]), scores_for(2))
    masked = processor(torch.tensor([[1, ord("a")], [1, ord("z")]]), scores_for(2))
    assert allowed(masked) == [{ord("b")}, set()]


def test_stop_tokens_of_the_call(byte_compiler: Compiler) -> None:
    processor = GrammarLogitsProcessor(byte_compiler.compile_regex("a"), stop_token_ids=[END, ord("!")])
    processor(torch.tensor([[1]]), scores_for(1))
    assert allowed(processor(torch.tensor([[1, ord("a")]]), scores_for(1))) == [{END, ord("!")}]


def test_wrong_number_of_grammars(byte_compiler: Compiler) -> None:
    with pytest.raises(ValueError, match="no grammar"):
        GrammarLogitsProcessor([])
    grammar = byte_compiler.compile_regex("a")
    with pytest.raises(ValueError, match="2 grammars for 3 sequences"):
        GrammarLogitsProcessor([grammar, grammar])(torch.tensor([[1]] * 3), scores_for(3))


# On a model


@pytest.fixture(scope="module")
def model() -> Any:
    """GPT-2's architecture with two small random layers, on bytes: it would write noise."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=WIDTH, n_positions=512, n_embd=32, n_layer=2, n_head=2, bos_token_id=END, eos_token_id=END
    )
    return transformers.GPT2LMHeadModel(config).eval()


def generate(model: Any, processor: GrammarLogitsProcessor, prompts: list[str], **options: Any) -> list[str]:
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt.encode()) for prompt in prompts])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers, about its own defaults
        out = model.generate(
            ids,
            attention_mask=(ids != 0).long(),
            logits_processor=[processor],
            max_new_tokens=40,
            pad_token_id=END,
            **options,
        )
    return [text_of(row[longest:].tolist()) for row in out]


SCHEMA = {
    "type": "object",
    "properties": {"size": {"enum": ["small", "large"]}, "count": {"enum": ["7", "12", "71"]}},
    "required": ["size", "count"],
    "additionalProperties": False,
}


def is_right(text: str) -> bool:
    value = json.loads(text)
    return value["size"] in ("small", "large") and value["count"] in ("7", "12", "71")


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": False},
        {"do_sample": True, "num_return_sequences": 3},
        {"do_sample": False, "num_beams": 4, "num_return_sequences": 2},
        {"do_sample": True, "num_beams": 3},
    ],
    ids=["greedy", "samples", "beams", "beam samples"],
)
def test_generate(model: Any, options: dict[str, Any]) -> None:
    """Two prompts of different length, one grammar each, one processor for two calls."""
    compiler = Compiler(Tokenizer.from_bytes())
    schema = compiler.compile_json_schema(SCHEMA, whitespace="compact")
    date = compiler.compile_regex("[12][0-9]{3}-[01][0-9]")
    processor = GrammarLogitsProcessor([schema, date], prefetch=4)
    each = options.get("num_return_sequences", 1)
    for _ in range(2):
        texts = generate(model, processor, ["A size:", "When?"], **options)
        assert len(texts) == 2 * each
        for text in texts[:each]:
            assert is_right(text), text
        for text in texts[each:]:
            assert len(text) == 7, text
            assert text[4] == "-"


def test_generate_returns_raw_logits_as_they_were(model: Any) -> None:
    grammar = Compiler(Tokenizer.from_bytes()).compile_regex("abc")
    ids = torch.tensor([[1, 2]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            logits_processor=[GrammarLogitsProcessor(grammar)],
            max_new_tokens=2,
            pad_token_id=END,
            output_logits=True,
            return_dict_in_generate=True,
        )
    assert all(torch.isfinite(logits).all() for logits in out.logits)
