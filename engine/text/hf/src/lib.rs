// SPDX-License-Identifier: Apache-2.0
//! Hugging Face `tokenizers` and `minijinja` behind the C border that `hf_text.h` describes.

mod ffi;
mod generation_tag;
mod template;
mod template_functions;
mod tokenizer;
