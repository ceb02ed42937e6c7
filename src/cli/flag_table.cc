#include "cli/flag_table.h"

#include <array>

#include "base/error.h"

namespace minisgl::cli {

namespace {

constexpr std::array kCommands = {
    CommandSpec{kGenerate, "generate", "Answer prompts and exit."},
    CommandSpec{kChat, "chat", "Talk to a model in the terminal."},
    CommandSpec{kTokenize, "tokenize", "Text or chat messages to token ids."},
    CommandSpec{kDetokenize, "detokenize", "Token ids to text."},
    CommandSpec{kInfo, "info", "Show a model's configuration, weights and memory plan without loading it."},
    CommandSpec{kDoctor, "doctor", "Show hardware, drivers, libraries and how this program was built."},
    CommandSpec{kBenchLatency, "bench latency", "Measure prefill and decode of one request against the hardware's limits."},
    CommandSpec{kCheck, "check", "Test every backend on this hardware against reference results."},
};

constexpr unsigned kModelCommands = kEngineCommands | kTokenize | kDetokenize | kInfo;
constexpr unsigned kSampled = kGenerate | kChat;

constexpr std::string_view kModel = "Model";
constexpr std::string_view kInput = "Input and output";
constexpr std::string_view kSampling = "Sampling";
constexpr std::string_view kEngine = "Engine";
constexpr std::string_view kBench = "Measurement";
constexpr std::string_view kGeneral = "General";

constexpr std::array kFlags = {
    // clang-format off
    FlagSpec{"model", FlagType::kString, kModel, "M", "", "Folder in Hugging Face layout, .gguf file, hub id in the local cache (org/name), or shape:qwen3-0.6b|8b|14b|32b|30b-a3b (dummy weights).", kModelCommands},
    FlagSpec{"revision", FlagType::kString, kModel, "R", "main", "Revision of a hub id in the local cache.", kModelCommands},
    FlagSpec{"tokenizer", FlagType::kString, kModel, "PATH", "the model's", "Folder or tokenizer.json to use instead of the model's; 'none': token ids in, token ids out.", kModelCommands},
    FlagSpec{"chat-template", FlagType::kString, kModel, "FILE", "the model's", "Jinja chat template to use instead of the model's.", kModelCommands},
    FlagSpec{"bos-token", FlagType::kString, kModel, "T", "the model's", "Text of the BOS token in chat templates.", kModelCommands},
    FlagSpec{"eos-token", FlagType::kString, kModel, "T", "the model's", "Text of the EOS token in chat templates.", kModelCommands},
    FlagSpec{"now", FlagType::kString, kModel, "TIME", "the clock", "Time that chat templates see, as 2026-01-15T12:00:00.", kModelCommands},

    FlagSpec{"prompt", FlagType::kString, kInput, "TEXT", "", "A prompt; '-' reads it from stdin. May be repeated.", kGenerate, true},
    FlagSpec{"prompt-ids", FlagType::kString, kInput, "1,2,3", "", "A prompt as token ids. May be repeated.", kGenerate, true},
    FlagSpec{"prompts-file", FlagType::kString, kInput, "F.jsonl", "", "One request per line: {\"prompt\":...}, {\"prompt_token_ids\":[...]} or {\"messages\":[...]}, plus any sampling field.", kGenerate},
    FlagSpec{"chat", FlagType::kBool, kInput, "", "", "Treat each --prompt as a user message and render it with the chat template.", kGenerate},
    FlagSpec{"json", FlagType::kBool, kInput, "", "", "Print one JSON object per result.", kGenerate | kInfo | kDoctor | kBenchLatency | kCheck},
    FlagSpec{"system", FlagType::kString, kInput, "TEXT", "", "System message.", kChat},
    FlagSpec{"text", FlagType::kString, kInput, "T", "", "Text to encode.", kTokenize},
    FlagSpec{"file", FlagType::kString, kInput, "F.jsonl", "", "tokenize: one {\"text\":...} per line. detokenize: one {\"token_ids\":[...]} per line.", kTokenize | kDetokenize},
    FlagSpec{"messages-file", FlagType::kString, kInput, "F.jsonl", "", "One {\"messages\":[...]} per line, with optional tools, add_generation_prompt and chat_template_kwargs.", kTokenize},
    FlagSpec{"no-special-tokens", FlagType::kBool, kInput, "", "", "Add no special tokens (those in the text are still parsed).", kTokenize},
    FlagSpec{"plain-text", FlagType::kBool, kInput, "", "", "Do not parse special tokens in the text.", kTokenize},
    FlagSpec{"ids", FlagType::kString, kInput, "1,2,3", "", "Token ids to decode. May be repeated.", kDetokenize, true},
    FlagSpec{"skip-special-tokens", FlagType::kBool, kInput, "", "", "Leave special tokens out of the text.", kDetokenize},

    FlagSpec{"max-tokens", FlagType::kInt, kSampling, "N", "generate: 1024 or the rest of the context; chat: the rest", "Longest output in tokens.", kSampled},
    FlagSpec{"temperature", FlagType::kFloat, kSampling, "T", "the model's, else 0", "0 is greedy.", kSampled},
    FlagSpec{"top-k", FlagType::kInt, kSampling, "K", "the model's, else all", "Keep the K most likely tokens; -1 or 0: all.", kSampled},
    FlagSpec{"top-p", FlagType::kFloat, kSampling, "P", "the model's, else 1", "Keep the most likely tokens up to mass P, in (0, 1].", kSampled},
    FlagSpec{"min-p", FlagType::kFloat, kSampling, "P", "the model's, else 0", "Drop tokens below P times the most likely one.", kSampled},
    FlagSpec{"seed", FlagType::kInt, kSampling, "N", "drawn and reported", "Seed of random sampling.", kSampled},
    FlagSpec{"n", FlagType::kInt, kSampling, "N", "1", "Choices per prompt.", kGenerate},
    FlagSpec{"stop", FlagType::kString, kSampling, "TEXT", "", "Text that ends the output. May be repeated.", kSampled, true},
    FlagSpec{"stop-token-ids", FlagType::kString, kSampling, "1,2,3", "", "Token ids that end the output.", kSampled},
    FlagSpec{"ignore-eos", FlagType::kBool, kSampling, "", "", "Do not end at end-of-sequence tokens.", kSampled},
    FlagSpec{"min-tokens", FlagType::kInt, kSampling, "N", "0", "No end-of-sequence or stop before N tokens.", kSampled},
    FlagSpec{"presence-penalty", FlagType::kFloat, kSampling, "X", "0", "Subtracted once from the logit of a token already in the output.", kSampled},
    FlagSpec{"frequency-penalty", FlagType::kFloat, kSampling, "X", "0", "Subtracted for each occurrence in the output.", kSampled},
    FlagSpec{"repetition-penalty", FlagType::kFloat, kSampling, "X", "the model's, else 1", "Divides positive logits of tokens in prompt or output.", kSampled},
    FlagSpec{"logit-bias", FlagType::kString, kSampling, "ID:X,ID:X", "", "Added to the logits of these tokens, each in [-100, 100].", kSampled},
    FlagSpec{"logprobs", FlagType::kInt, kSampling, "K", "none", "Report log-probabilities of the output and of the K most likely tokens (with --json).", kGenerate},
    FlagSpec{"prompt-logprobs", FlagType::kInt, kSampling, "K", "none", "The same for the prompt (with --json).", kGenerate},

    FlagSpec{"device", FlagType::kString, kEngine, "D", "auto", "auto or cpu.", kEngineCommands | kInfo},
    FlagSpec{"dtype", FlagType::kString, kEngine, "T", "auto", "auto (the checkpoint's; float16 and a quantised GGUF become bfloat16), float32 (float16 exactly) or bfloat16.", kEngineCommands | kInfo},
    FlagSpec{"dummy-weights", FlagType::kBool, kEngine, "", "", "Random weights: N(0, 0.02), seed 0, norms 1.", kEngineCommands | kInfo},
    FlagSpec{"max-running-requests", FlagType::kInt, kEngine, "N", "256", "Most requests computed at once.", kEngineCommands | kInfo},
    FlagSpec{"max-model-len", FlagType::kInt, kEngine, "N", "the model's", "Longest prompt plus output in tokens.", kEngineCommands | kInfo},
    FlagSpec{"memory-ratio", FlagType::kFloat, kEngine, "R", "0.9", "Share of the memory left after weights and workspaces that the KV pool may take.", kEngineCommands | kInfo},
    FlagSpec{"num-pages", FlagType::kInt, kEngine, "N", "from memory", "KV pages.", kEngineCommands | kInfo},
    FlagSpec{"page-size", FlagType::kInt, kEngine, "N", "16", "Tokens per KV page.", kEngineCommands | kInfo},
    FlagSpec{"max-prefill-tokens", FlagType::kInt, kEngine, "N", "8192", "Most prompt tokens computed in one step.", kEngineCommands | kInfo},
    FlagSpec{"cache-type", FlagType::kString, kEngine, "C", "radix", "radix: what prompts begin with alike is computed once; naive: no prefix cache.", kSampled},
    FlagSpec{"schedule-policy", FlagType::kString, kEngine, "P", "fcfs", "fcfs: by arrival; lpm: the longest cached prefix first.", kEngineCommands},
    FlagSpec{"admission", FlagType::kString, kEngine, "A", "expected", "expected: room for the output that is likely, the newest requests make way if it was not enough; full: room for --max-tokens.", kEngineCommands},
    FlagSpec{"mixed-steps", FlagType::kBool, kEngine, "", "", "Prompts and running requests share a step; otherwise prompts come first.", kEngineCommands},
    FlagSpec{"no-overlap", FlagType::kBool, kEngine, "", "", "Build a step only when the one before is done.", kEngineCommands},
    FlagSpec{"threads", FlagType::kInt, kEngine, "N", "the CPUs this process may use", "CPU threads, at most 1024.", kEngineCommands | kInfo | kCheck},

    FlagSpec{"prompt-tokens", FlagType::kInt, kBench, "N", "512", "Prompt length.", kBenchLatency},
    FlagSpec{"output-tokens", FlagType::kInt, kBench, "N", "64", "Output length.", kBenchLatency},
    FlagSpec{"runs", FlagType::kInt, kBench, "N", "5", "Measured runs; figures are medians.", kBenchLatency},

    FlagSpec{"config", FlagType::kString, kGeneral, "FILE", "", "TOML file with flags as keys (max-tokens = 64). Command line and environment win.", kAllCommands},
    FlagSpec{"log-level", FlagType::kString, kGeneral, "L", "info", "trace, debug, info, warning, error or off.", kAllCommands},
    FlagSpec{"log-format", FlagType::kString, kGeneral, "F", "text", "text or json.", kAllCommands},
    FlagSpec{"quiet", FlagType::kBool, kGeneral, "", "", "Only errors on stderr.", kAllCommands},
    FlagSpec{"print-config", FlagType::kBool, kGeneral, "", "", "Print the flags in force as TOML and exit.", kAllCommands},
    FlagSpec{"help", FlagType::kBool, kGeneral, "", "", "Show this text.", kAllCommands},
    FlagSpec{"version", FlagType::kBool, kGeneral, "", "", "Print the version of this program.", kAllCommands},
    FlagSpec{"licenses", FlagType::kBool, kGeneral, "", "", "Print the licences of the libraries in this program.", kAllCommands},
    // clang-format on
};

constexpr std::array kAliases = {
    AliasSpec{"-h", "everyone", "help", ""},
    AliasSpec{"--model-path", "SGLang", "model", ""},
    AliasSpec{"-m", "llama.cpp", "model", ""},
    AliasSpec{"-p", "llama.cpp", "prompt", ""},
    AliasSpec{"-n", "llama.cpp", "max-tokens", ""},
    AliasSpec{"-c", "llama.cpp", "max-model-len", ""},
    AliasSpec{"-t", "llama.cpp", "threads", ""},
    AliasSpec{"--context-length", "SGLang", "max-model-len", ""},
    AliasSpec{"--chunked-prefill-size", "SGLang", "max-prefill-tokens", ""},
    AliasSpec{"--max-prefill-length", "mini-sglang", "max-prefill-tokens", ""},
    AliasSpec{"--max-num-batched-tokens", "vLLM", "max-prefill-tokens", ""},
    AliasSpec{"--cache", "mini-sglang", "cache-type", ""},
    AliasSpec{"--disable-overlap-schedule", "SGLang", "no-overlap", ""},
    AliasSpec{"--disable-radix-cache", "SGLang", "", "use --cache-type naive"},
    AliasSpec{"--max-num-seqs", "vLLM", "max-running-requests", ""},
    AliasSpec{"--dummy-weight", "mini-sglang", "dummy-weights", ""},
    AliasSpec{"--max-seq-len-override", "mini-sglang", "max-model-len", ""},
    AliasSpec{"--shell", "mini-sglang", "", "run 'minisgl chat'"},
    AliasSpec{"--shell-mode", "mini-sglang", "", "run 'minisgl chat'"},
    AliasSpec{"--load-format", "vLLM", "", "use --dummy-weights for 'dummy'; other formats are found by themselves"},
    AliasSpec{"--mem-fraction-static", "SGLang", "", "use --memory-ratio, a share of what is free after the weights are loaded"},
    AliasSpec{"--gpu-memory-utilization", "vLLM", "", "use --memory-ratio, a share of what is free after the weights are loaded"},
    AliasSpec{"--max-total-tokens", "SGLang", "", "use --num-pages, counted in pages of --page-size tokens"},
};

}  // namespace

std::span<const CommandSpec> command_table() {
  return kCommands;
}
std::span<const FlagSpec> flag_table() {
  return kFlags;
}
std::span<const AliasSpec> alias_table() {
  return kAliases;
}

const FlagSpec* find_flag(std::string_view name) {
  for (const FlagSpec& flag : kFlags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

const CommandSpec& command_spec(Command command) {
  for (const CommandSpec& spec : kCommands) {
    if (spec.command == command) return spec;
  }
  MINISGL_CHECK(false, "command {}", static_cast<unsigned>(command));
  return kCommands.front();
}

}  // namespace minisgl::cli
