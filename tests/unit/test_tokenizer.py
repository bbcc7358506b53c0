"""Tokenizers from a directory: ids, special tokens, and the bytes that each id stands for."""

from __future__ import annotations

import json
import random
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, processors

from pagurid.errors import InvalidRequest, ModelLoadError
from pagurid.tokenizer import Tokenizer
from pagurid.tokenizer.directory import tokenizer_from_directory
from pagurid.tokenizer.vocabulary import VocabularyData, byte_level_alphabet, vocabulary_data
from tiny_models import make_tiny_model, tiny_tokenizer, write_json

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = [
    "What is the capital of France?",
    "Déjà vu, naïve façade; 日本語と中文; emoji 🙂🦀 \U0001f468‍\U0001f469‍\U0001f467",
    "  leading, trailing  \n\n\ttabs\r\n",
    "x" * 50 + "0123456789",
    "\x00\x1f\x7f\u200b\ufeff\uffff",
]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "tiny")


@pytest.fixture
def tokenizer(directory: Path) -> Tokenizer:
    return tokenizer_from_directory(directory, vocab_size=512)


def text_of(data: VocabularyData, ids: list[int]) -> str:
    return b"".join(data.token_bytes[token_id] for token_id in ids).decode("utf-8", errors="replace")


def id_of(backend: tokenizers.Tokenizer, token: str) -> int:
    token_id = backend.token_to_id(token)
    assert token_id is not None
    return token_id


def make_tokenizer(backend: tokenizers.Tokenizer, vocab_size: int = 600, **options: Any) -> Tokenizer:
    fields: dict[str, Any] = {"special_tokens": {}, "eos_token_ids": (), "chat_templates": {}, "file": "test"}
    return Tokenizer(backend, vocab_size=vocab_size, **(fields | options))


def test_alphabet_is_the_byte_level_one() -> None:
    """The 256 characters are those of the tokenizers library, each for its byte."""
    alphabet = byte_level_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    decoder = decoders.ByteLevel()
    for character, byte in alphabet.items():
        if byte < 0x80:
            assert decoder.decode([character]) == chr(byte)
    assert (
        decoder.decode([key for byte in "é日🦀".encode() for key, b in alphabet.items() if b == byte])
        == "é日🦀"
    )


@pytest.mark.parametrize("text", TEXTS)
def test_bytes_of_the_ids_are_the_text(tokenizer: Tokenizer, text: str) -> None:
    """Byte-level: nothing is lost on the way to ids and back, and the library says the same."""
    ids = tokenizer.encode(text)
    data = tokenizer.vocabulary_data()
    assert text_of(data, ids) == text
    assert tiny_tokenizer().decode(ids, skip_special_tokens=False) == text


def test_decode_is_the_librarys(tokenizer: Tokenizer) -> None:
    """Random ids, ill-formed UTF-8 among them: the core has the text of the library."""
    backend = tiny_tokenizer()
    rng = random.Random(0)
    for _ in range(200):
        ids = [rng.randrange(backend.get_vocab_size()) for _ in range(rng.randrange(30))]
        for skip in (True, False):
            assert tokenizer.decode(ids, skip_special_tokens=skip) == backend.decode(ids, skip)
    assert tokenizer.decode([1, *tokenizer.encode("crab"), 500, 2]) == "crab", "id 500 has no token"


def test_vocabulary_is_padded_to_the_logits(tokenizer: Tokenizer) -> None:
    """As many entries as a row of logits; an id without a token adds nothing."""
    data = tokenizer.vocabulary_data()
    size = tiny_tokenizer().get_vocab_size()
    assert len(data.token_bytes) == 512 > size
    assert set(data.token_bytes[size:]) == {b""}
    assert all(data.token_bytes[:size])
    assert data.special_token_ids == [0, 1, 2]
    assert not data.strip_leading_space


def test_added_tokens_are_literal() -> None:
    """D05: added tokens, special or not, stand for their own text, whatever characters they have."""
    backend = tokenizers.Tokenizer.from_str(tiny_tokenizer().to_str())
    backend.add_tokens([AddedToken("<é Ġ>", normalized=False)])
    data = make_tokenizer(backend).vocabulary_data()
    ids = [id_of(backend, token) for token in ("<think>", "</think>", "<é Ġ>", "<|im_end|>")]
    ok = backend.encode("ok").ids
    one = backend.encode("1").ids
    assert text_of(data, [ids[0], *ok, ids[1], *one]) == "<think>ok</think>1"
    assert text_of(data, ids) == "<think></think><é Ġ><|im_end|>"
    assert data.special_token_ids == [0, 1, 2]


def sentencepiece_like() -> tokenizers.Tokenizer:
    """Pieces as Llama 2's tokenizer.json has them."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁Da", "ener", "ys", "▁is", "▁the", "leading", "▁x", "»"]
    backend = tokenizers.Tokenizer(
        models.BPE({piece: index for index, piece in enumerate(pieces)}, [], byte_fallback=True)
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return backend


def test_sentencepiece_bytes() -> None:
    """D03, D04: ▁ is a space, stripped once at the start; <0xE2> is a byte, whatever follows."""
    backend = sentencepiece_like()
    data = make_tokenizer(backend).vocabulary_data()

    def joined(*pieces: str) -> bytes:
        return b"".join(data.token_bytes[id_of(backend, piece)] for piece in pieces)

    assert data.strip_leading_space
    assert joined("▁Da", "ener", "ys", "▁is", "▁the") == b" Daenerys is the"
    assert joined("▁", "leading", "▁x") == b" leading x"
    assert joined("<0x20>", "<0xE2>", "<0x82>", "»") == b"\x20\xe2\x82" + "»".encode()
    assert joined("<s>", "</s>") == b"<s></s>"
    daenerys = [id_of(backend, piece) for piece in ("▁Da", "ener", "ys", "▁is", "▁the")]
    assert make_tokenizer(backend).decode(daenerys) == backend.decode(daenerys) == "Daenerys is the"


@pytest.mark.parametrize(
    ("decoder", "strips"),
    [
        (decoders.Metaspace(), True),
        (decoders.Metaspace(prepend_scheme="first"), True),
        (decoders.Metaspace(prepend_scheme="never"), False),
        (decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]), False),
    ],
)
def test_decoders_that_strip(decoder: decoders.Decoder, strips: bool) -> None:
    """D03: whether the first space goes is the decoder's word."""
    backend = sentencepiece_like()
    backend.decoder = decoder
    data = make_tokenizer(backend).vocabulary_data()
    assert data.strip_leading_space is strips
    assert data.token_bytes[id_of(backend, "▁the")] == b" the"


def test_decoder_that_is_not_understood() -> None:
    """A decoder that is not a function of single tokens is refused, not guessed."""
    backend = sentencepiece_like()
    backend.decoder = decoders.WordPiece()
    with pytest.raises(ModelLoadError, match="decoder 'WordPiece' is not supported"):
        make_tokenizer(backend).vocabulary_data()
    with pytest.raises(ModelLoadError, match="has no decoder"):
        vocabulary_data({"decoder": None}, {}, 10)


def test_parse_special(tokenizer: Tokenizer) -> None:
    """Special tokens in a text are those tokens, or plain text that reads the same."""
    text = "<|im_start|>user<|im_end|>"
    parsed, literal = tokenizer.encode(text), tokenizer.encode(text, parse_special=False)
    assert parsed[0] == 1
    assert parsed[-1] == 2
    assert not {0, 1, 2} & set(literal)
    data = tokenizer.vocabulary_data()
    assert text_of(data, parsed) == text_of(data, literal) == text
    assert tokenizer.encode(text) == parsed, "one call's setting does not stay for the next"


def test_add_special_tokens() -> None:
    """What the model was trained to begin with comes only when it is asked for."""
    backend = tokenizers.Tokenizer.from_str(tiny_tokenizer().to_str())
    backend.post_processor = processors.TemplateProcessing(
        single=["<|im_start|>", "$A"], special_tokens=[("<|im_start|>", 1)]
    )
    tokenizer = make_tokenizer(backend)
    assert tokenizer.encode("x", add_special_tokens=True) == [1, *tokenizer.encode("x")]
    assert tokenizer.encode("", add_special_tokens=True) == [1]
    assert tokenizer.encode("") == []


def test_truncation_and_padding_of_the_file_are_ignored(directory: Path) -> None:
    """Settings that someone saved with a tokenizer must not cut prompts short."""
    backend = tokenizers.Tokenizer.from_str(tiny_tokenizer().to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=100)
    backend.save(str(directory / "tokenizer.json"))
    ids = tokenizer_from_directory(directory, vocab_size=512).encode("0123456789")
    assert len(ids) == 10


@pytest.mark.parametrize("text", ["emoji \ud83d", "x \ude00 y", "\udcf0"])
def test_unpaired_surrogate(tokenizer: Tokenizer, text: str) -> None:
    """D26: a clear error that says where, not the library's."""
    with pytest.raises(InvalidRequest, match=r"unpaired surrogate, U\+D[8-F]..,? at character \d"):
        tokenizer.encode(text)


def test_special_tokens_in_both_spellings(directory: Path) -> None:
    """Text, or an object with `content`; special_tokens_map.json fills the gaps."""
    config = json.loads((directory / "tokenizer_config.json").read_text())
    del config["bos_token"]
    config["eos_token"] = {"content": "<|im_end|>", "lstrip": False, "special": True}
    write_json(directory / "tokenizer_config.json", config)
    write_json(directory / "special_tokens_map.json", {"bos_token": "<|im_start|>", "eos_token": "<think>"})
    tokenizer = tokenizer_from_directory(directory, vocab_size=512, eos_token_ids=[7])
    assert tokenizer.bos_token_id == 1
    assert tokenizer.eos_token_ids == {2, 7}
    assert tokenizer.special_tokens["eos_token"] == "<|im_end|>"


def test_end_ids_beyond_the_logits_are_dropped() -> None:
    """D33: configs of cut-down models name ids that they no longer have."""
    assert make_tokenizer(tiny_tokenizer(), 512, eos_token_ids=[-1, 2, 511, 512]).eos_token_ids == {2, 511}


def test_directory_without_tokenizer_config(directory: Path) -> None:
    """tokenizer.json alone is a tokenizer, without special tokens and templates."""
    (directory / "tokenizer_config.json").unlink()
    tokenizer = tokenizer_from_directory(directory, vocab_size=512)
    assert tokenizer.bos_token_id is None
    assert tokenizer.eos_token_ids == frozenset()
    assert not tokenizer.has_chat_template


def test_broken_tokenizer(directory: Path) -> None:
    """The file is named; a bare SentencePiece model says what is missing."""
    (directory / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json cannot be read"):
        tokenizer_from_directory(directory, vocab_size=512)
    (directory / "tokenizer.json").unlink()
    (directory / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ModelLoadError, match=r"tokenizer\.json is missing: a bare tokenizer\.model"):
        tokenizer_from_directory(directory, vocab_size=512)


def test_texts_of_this_file_are_what_they_seem() -> None:
    """The editor has not normalised or replaced anything."""
    assert any(unicodedata.category(character) == "Cc" for character in TEXTS[-1])
    assert "\u200d" in TEXTS[1]
