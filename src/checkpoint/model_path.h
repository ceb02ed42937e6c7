#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace minisgl {

enum class ModelFormat : uint8_t { kHuggingFaceFolder, kGguf, kShape };

/// What `--model` stands for.
struct ModelPath {
  ModelFormat format = ModelFormat::kHuggingFaceFolder;
  /// The folder or the .gguf file; empty for a shape.
  std::filesystem::path path;
  /// kShape: the name after "shape:".
  std::string shape;
};

/// Resolves `model`, tried in this order:
///   "shape:NAME"                 a built-in configuration without weights;
///   an existing file or folder   a .gguf file (by name or by its first bytes), or a folder in Hugging Face layout;
///   "org/name"                   a hub id in the local cache: $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
///                                ~/.cache/huggingface/hub, at `revision` (a branch or tag under refs/, or a commit).
/// Throws Error(kNotFound): a path names the nearest entries that exist, a hub id the command that downloads it.
ModelPath resolve_model_path(const std::string& model, const std::string& revision = "main");

}  // namespace minisgl
