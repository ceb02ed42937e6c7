#!/usr/bin/env python3
"""Writes tests/data/tokenizer/cases.json: small tokenizers, one for each component and option that the engine executes, with the ids and
texts that Hugging Face `tokenizers` computes from them (pip install tokenizers==0.23.3).

    make_tokenizer_cases.py > tests/data/tokenizer/cases.json
    make_tokenizer_cases.py --random 500 --tokenizer PATH/tokenizer.json > /tmp/cases.json   # a differential fuzz; see the test
"""
import argparse
import json
import random
import sys
import unicodedata

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

SAMPLE = """The quick brown fox doesn't jump over the 12 lazy dogs; they're 345 metres away. naïve café, Ångström! And the
others: hello, hello hello world world. In the end, the theory of the other thing is that there are then them. 日本語 日本"""

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = [
    "", " ", "   ", "Hello, world! The theory of the others", "they're HE'LL it's", " the  then\tthem\n\n 123a45", "naïve café e\u0301 Å ﬁ ½ x²",
    "日本語、テスト。 한국어", "👩‍👧 \u00a0nbsp\u2003em\u180e\u200b", "a-b--c---", "<s> <x> <<x>>yz<mask> , the<mask>  word words word", "İIıß ΑΣ",
    "\x00\x1c\x85 Ⅷ٣३", "_under_score—dash“q”", "▁▁a ▁b", "the<x>the <x> the", "a▁\n▁Z", "hello<pad>hello <PAD>hello",
]

ADDED = [
    {"content": "<s>", "special": True}, {"content": "</s>", "special": True}, {"content": "<x>", "special": False},
    {"content": "<x>>yz", "special": False}, {"content": "<mask>", "special": True, "lstrip": True},
    {"content": "word", "special": False, "single_word": True}, {"content": "<pad>", "special": False, "normalized": True, "rstrip": True},
]


def merges_of(words, count):
    """Trains byte-pair merges on a list of words, ties by text: small, and the same on every machine."""
    words = [list(w) for w in words]
    merges = []
    while len(merges) < count:
        pairs = {}
        for w in words:
            for pair in zip(w, w[1:]):
                pairs[pair] = pairs.get(pair, 0) + 1
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(list(best))
        for k, w in enumerate(words):
            out = []
            for c in w:
                if out and (out[-1], c) == best:
                    out[-1] += c
                else:
                    out.append(c)
            words[k] = out
    return merges


def model(alphabet, words, count, **options):
    merges = merges_of([w for w in words if set(w) <= set(alphabet)], count)
    tokens = list(alphabet)
    for left, right in merges:
        if left + right not in tokens:
            tokens.append(left + right)
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **options, "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": merges}


def byte_words():
    return [w for w, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(SAMPLE)]


LETTERS = [chr(c) for c in range(0x21, 0x7f)] + ["▁", "é", "日", "本"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]
META_WORDS = ["▁" + w for w in SAMPLE.replace("\n", " ").split(" ") if w] + ["▁▁▁▁"]


def models():
    alphabet = sorted(ByteLevel.alphabet())
    text = model(["<unk>"] + LETTERS, META_WORDS, 90)
    prefixed = {"type": "BPE", "continuing_subword_prefix": "##", "unk_token": "<unk>", "vocab": {}, "merges": []}
    for token in ["<unk>"] + LETTERS + ["##" + c for c in LETTERS] + ["th", "##he", "the", "##er", "they"]:
        prefixed["vocab"].setdefault(token, len(prefixed["vocab"]))
    prefixed["merges"] = [["t", "##h"], ["##h", "##e"], ["th", "##e"], ["##e", "##r"], ["the", "##y"]]
    suffixed = {"type": "BPE", "end_of_word_suffix": "</w>", "vocab": {}, "merges": [["t", "h"], ["th", "e</w>"], ["r", "s</w>"]]}
    for token in LETTERS + [c + "</w>" for c in LETTERS] + ["th", "the</w>", "rs</w>"]:
        suffixed["vocab"].setdefault(token, len(suffixed["vocab"]))
    byte_tokens = {**text, "vocab": {t: i for i, t in enumerate(["<unk>"] + BYTES + [t for t in text["vocab"] if t != "<unk>"])}}
    few_bytes = {**text, "vocab": {t: i for i, t in enumerate(["<unk>"] + BYTES[0x80:0xF0] + [t for t in text["vocab"] if t != "<unk>"])}}
    return {
        "bytes": model(alphabet, byte_words(), 100),
        "bytes_missing": model([c for c in alphabet if c not in "Ġ!é"], byte_words(), 40),
        "text": {**text, "unk_token": "<unk>"},
        "text_drop": text,
        "fallback": {**byte_tokens, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
        "few_bytes": {**few_bytes, "unk_token": "<unk>", "byte_fallback": True},
        "prefixed": prefixed,
        "suffixed": suffixed,
    }


def seq(kind, *steps):
    key = {"normalizer": "normalizers", "pre": "pretokenizers", "decoder": "decoders", "post": "processors"}[kind]
    return {"type": "Sequence", key: list(steps)}


def byte_level(prefix=False, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def metaspace(scheme="always", split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


def template(before, after):
    special = {t: {"id": t, "ids": [t], "tokens": [t]} for t in before + after}
    piece = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    single = [piece(t) for t in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [piece(t) for t in after]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": special}


STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
LLAMA_DECODER = seq("decoder", replace({"String": "▁"}, " "), {"type": "ByteFallback"}, {"type": "Fuse"}, STRIP)
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def variants():
    """(name, model, the parts of the tokenizer that differ from nothing)."""
    b = dict(pre_tokenizer=byte_level(), decoder=byte_level())
    yield "byte_level", "bytes", b
    yield "byte_level_prefix", "bytes", dict(b, pre_tokenizer=byte_level(prefix=True))
    yield "byte_level_no_regex", "bytes", dict(b, pre_tokenizer=byte_level(regex=False))
    yield "byte_level_missing", "bytes_missing", b
    yield "qwen_like", "bytes", dict(b, normalizer={"type": "NFC"},
                                     pre_tokenizer=seq("pre", split({"Regex": QWEN}), byte_level(regex=False)))
    yield "digits_then_bytes", "bytes", dict(b, pre_tokenizer=seq("pre", {"type": "Digits", "individual_digits": True}, byte_level()))
    yield "bytes_then_digits", "bytes", dict(b, pre_tokenizer=seq("pre", byte_level(), {"type": "Digits", "individual_digits": False}))
    yield "ignore_merges", "bytes", dict(b, model={"ignore_merges": True}, pre_tokenizer=seq("pre", split({"Regex": r"\s?\w+"}), byte_level(regex=False)))
    yield "bytes_with_template", "bytes", dict(b, post_processor=template(["<s>"], ["</s>", "<s>"]))
    yield "post_sequence", "bytes", dict(b, post_processor=seq("post", byte_level(), template(["<s>"], [])))
    yield "roberta", "bytes", dict(b, post_processor={"type": "RobertaProcessing", "sep": ["</s>", "</s>"], "cls": ["<s>", "<s>"],
                                                      "trim_offsets": True, "add_prefix_space": False})
    yield "bert", "bytes", dict(b, post_processor={"type": "BertProcessing", "sep": ["</s>", "</s>"], "cls": ["<s>", "<s>"]})
    for form in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"]:
        yield form, "bytes", dict(b, normalizer={"type": form})
    yield "strip_left", "bytes", dict(b, normalizer={"type": "Strip", "strip_left": True, "strip_right": False})
    yield "strip_both", "bytes", dict(b, normalizer={"type": "Strip", "strip_left": True, "strip_right": True})
    yield "strip_accents", "bytes", dict(b, normalizer=seq("normalizer", {"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}))
    yield "replace_regex", "bytes", dict(b, normalizer=replace({"Regex": r"[\s\d]+"}, "_"))
    yield "replace_string", "bytes", dict(b, normalizer=replace({"String": "the"}, "THE "))
    yield "byte_level_normalizer", "bytes", dict(normalizer={"type": "ByteLevel"}, decoder=byte_level())
    yield "prepend", "text", dict(normalizer=seq("normalizer", {"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁")))
    for behavior in BEHAVIORS:
        for invert in [False, True]:
            yield f"split_{behavior}_{invert}", "text", dict(pre_tokenizer=split({"Regex": r"[aeiou\s]|-+"}, behavior, invert))
    yield "split_string", "text", dict(pre_tokenizer=split({"String": "-"}, "MergedWithNext", False))
    yield "split_empty_matches", "text", dict(pre_tokenizer=split({"Regex": r"(?=e)|h*"}, "Isolated", False))
    for scheme in ["always", "first", "never"]:
        for cut in [True, False]:
            yield f"metaspace_{scheme}_{cut}", "text", dict(pre_tokenizer=metaspace(scheme, cut), decoder=metaspace(scheme, cut))
    yield "metaspace_old", "text", dict(pre_tokenizer={"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
                                        decoder={"type": "Metaspace", "replacement": "▁", "add_prefix_space": True})
    yield "split_then_metaspace", "text", dict(pre_tokenizer=seq("pre", split({"Regex": r"\p{P}"}, "Removed"), metaspace("first")))
    yield "digits", "text", dict(pre_tokenizer={"type": "Digits", "individual_digits": False})
    yield "digits_alone", "text_drop", dict(pre_tokenizer={"type": "Digits", "individual_digits": True})
    yield "punctuation", "text", dict(pre_tokenizer={"type": "Punctuation", "behavior": "Contiguous"})
    yield "punctuation_removed", "text", dict(pre_tokenizer={"type": "Punctuation", "behavior": "Removed"})
    yield "whitespace", "text", dict(pre_tokenizer={"type": "Whitespace"})
    yield "whitespace_split", "text", dict(pre_tokenizer={"type": "WhitespaceSplit"})
    yield "fuse_unk", "text", dict(model={"fuse_unk": True}, pre_tokenizer=metaspace())
    yield "drop_unknown", "text_drop", dict(pre_tokenizer=metaspace())
    yield "prefixed", "prefixed", dict(pre_tokenizer={"type": "Whitespace"})
    yield "suffixed", "suffixed", dict(pre_tokenizer={"type": "WhitespaceSplit"})
    llama = dict(normalizer=seq("normalizer", {"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁")), decoder=LLAMA_DECODER)
    yield "llama", "fallback", dict(llama, post_processor=template(["<s>"], []))
    yield "mistral", "fallback", dict(pre_tokenizer=metaspace("first", False), decoder=LLAMA_DECODER)
    yield "few_bytes", "few_bytes", llama
    yield "old_merges", "fallback", dict(llama, old_merges=True)
    yield "byte_fallback_only", "fallback", dict(llama, decoder={"type": "ByteFallback"})
    yield "strip_pieces", "fallback", dict(llama, decoder=seq("decoder", {"type": "Strip", "content": "▁", "start": 2, "stop": 1}, {"type": "ByteFallback"}))
    yield "strip_after_fallback", "fallback", dict(llama, decoder=seq("decoder", {"type": "ByteFallback"}, {"type": "Strip", "content": "e", "start": 1, "stop": 0},
                                                                      replace({"Regex": "h|\ufffd"}, "_")))
    yield "strip_end", "fallback", dict(llama, decoder=seq("decoder", replace({"String": "▁"}, " "), {"type": "Fuse"}, {"type": "Strip", "content": "e", "start": 0, "stop": 2}))


def build(name, model_json, parts):
    """A whole tokenizer.json; names of special tokens in templates become ids."""
    parts = dict(parts)
    model_json = {**model_json, **parts.pop("model", {})}
    if parts.pop("old_merges", False):
        model_json["merges"] = [" ".join(m) for m in model_json["merges"]]
    next_id = max(model_json["vocab"].values()) + 1
    added = []
    for token in ADDED:
        full = {"id": model_json["vocab"].get(token["content"], next_id), "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, **token}
        next_id += token["content"] not in model_json["vocab"]
        added.append(full)
    ids = {t["content"]: t["id"] for t in added}

    def resolve(value):
        if isinstance(value, dict):
            out = {k: resolve(v) for k, v in value.items()}
            if "ids" in out:
                out["ids"] = [ids[t] for t in value["ids"]]
            for key in ("sep", "cls"):
                if key in out:
                    out[key] = [value[key][0], ids[value[key][1]]]
            return out
        return [resolve(v) for v in value] if isinstance(value, list) else value

    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, **resolve(parts), "model": model_json}


def random_text(rng):
    ranges = [(0x20, 0x7e)] * 8 + [(0x00, 0x1f), (0xa0, 0x17f), (0x300, 0x36f), (0x370, 0x6ff), (0x900, 0xdff), (0x1100, 0x11ff), (0x2000, 0x206f), (0x2070, 0x2bff),
                                   (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xfb00, 0xfdff), (0xfe00, 0xffef), (0x10000, 0x10fff), (0x1f300, 0x1faff)]
    words = ["the", " ", "  ", "\n", "'s", "'LL", "123", "<x>", "<mask>", " word ", "<s>", "▁", "\u00a0", "\u180e", "ſ", "\u0130", "…", "\r\n", "word"]
    out = []
    for _ in range(rng.randint(0, 20)):
        if rng.random() < 0.4:
            out.append(rng.choice(words))
        else:
            low, high = rng.choice(ranges)
            out += [chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6))]
    # Characters newer than Python's tables are in some libraries' tables and not in others'.
    return "".join(c for c in "".join(out) if unicodedata.category(c) != "Cn")


def cases_of(tokenizer, rng, random_count):
    texts = TEXTS if random_count == 0 else [random_text(rng) for _ in range(random_count)]
    encode = []
    for text in texts:
        tokenizer.encode_special_tokens = False
        case = {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
        with_special = tokenizer.encode(text).ids
        if with_special != case["ids"]:
            case["with_special"] = with_special
        tokenizer.encode_special_tokens = True
        as_text = tokenizer.encode(text, add_special_tokens=False).ids
        if as_text != case["ids"]:
            case["special_as_text"] = as_text
        encode.append(case)
    decode = []
    size = tokenizer.get_vocab_size()
    lists = [c["ids"] for c in encode] + [[rng.randrange(size) for _ in range(rng.randint(1, 10))] for _ in range(len(texts) // 2 + 1)]
    for ids in lists:
        try:
            shown = tokenizer.decode(ids, skip_special_tokens=False)
            hidden = tokenizer.decode(ids, skip_special_tokens=True)
        except BaseException as error:  # Strip panics on a token that is shorter than what it strips
            if type(error).__name__ != "PanicException":
                raise
            continue
        decode.append({"ids": ids, "shown": shown, **({} if hidden == shown else {"hidden": hidden})})
    return {"encode": encode, "decode": decode}


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--random", type=int, default=0, help="random strings per tokenizer instead of the fixed ones")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--tokenizer", action="append", default=[], help="also a tokenizer.json of yours")
    options = arguments.parse_args()
    rng = random.Random(options.seed)
    base = models()
    print('{"models": ' + json.dumps(base, ensure_ascii=True) + ',\n"tokenizers": [')
    lines = []
    for name, model_name, parts in variants():
        whole = build(name, base[model_name], parts)
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        overrides = {k: v for k, v in whole["model"].items() if base[model_name].get(k) != v}
        whole["model"] = {"base": model_name, **overrides}
        lines.append(json.dumps({"name": name, "json": whole, **cases_of(tokenizer, rng, options.random)}))
    for path in options.tokenizer:
        lines.append(json.dumps({"name": path, "file": path, **cases_of(Tokenizer.from_file(path), rng, options.random)}))
    print(",\n".join(lines) + "\n]}")


if __name__ == "__main__":
    sys.exit(main())
