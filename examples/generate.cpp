// The library in use: loads a model and streams one greedy answer to standard output.
//
//   generate MODEL PROMPT

#include <cstdio>

#include "minisgl/llm.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: generate MODEL PROMPT\n", stderr);
    return 2;
  }
  try {
    minisgl::EngineConfig config;
    config.model = argv[1];
    minisgl::LLM llm(config);

    minisgl::GenerateRequest request;
    request.prompt = minisgl::TextPrompt{argv[2]};
    request.sampling.max_tokens = 64;
    const auto results = llm.generate({&request, 1}, [](const minisgl::StreamEvent& event) {
      std::fwrite(event.text.data(), 1, event.text.size(), stdout);
      std::fflush(stdout);
    });
    std::fputs("\n", stdout);
    if (!results[0].error) return 0;
    std::fprintf(stderr, "%s: %s\n", results[0].error->type.c_str(), results[0].error->message.c_str());
  } catch (const minisgl::Error& error) {
    std::fprintf(stderr, "%s: %s\n", minisgl::error_kind_name(error.kind()), error.what());
  }
  return 1;
}
