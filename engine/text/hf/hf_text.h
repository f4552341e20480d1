// SPDX-License-Identifier: Apache-2.0
// The C border of the Rust crate hf_text: Hugging Face `tokenizers` and the `minijinja` template
// engine. Written by hand; src/ffi.rs repeats its types. C++ callers use engine/text/hf_call.h.
//
// Every function
//  - takes texts as (pointer, size): no terminating NUL is read, NUL bytes inside are text;
//  - returns a status and, only if that is HF_OK, has filled its out parameters;
//  - neither throws nor aborts: a Rust panic becomes HF_PANIC.
// What it hands out belongs to the caller and goes back through the free function of its type.
// Handles are immutable: any number of threads may use one at a time, none while it is freed.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum HfCode {
  HF_OK = 0,
  HF_INVALID = 1,  // the input is at fault; the message says how
  HF_PANIC = 2,    // the library is
} HfCode;

// A text of the caller's, alive during the call. {NULL, 0} is the empty text.
typedef struct HfText {
  const char* data;
  size_t size;
} HfText;

// Owned results: hf_bytes_free, hf_ids_free, hf_matches_free. UTF-8 unless said otherwise.
typedef struct HfBytes {
  char* data;
  size_t size;
} HfBytes;

typedef struct HfIds {
  uint32_t* data;
  size_t size;
} HfIds;

typedef struct HfStatus {
  int32_t code;     // HfCode
  HfBytes message;  // empty with HF_OK; free it in any case
} HfStatus;

void hf_bytes_free(HfBytes bytes);
void hf_ids_free(HfIds ids);

// ---- Tokenizer ----------------------------------------------------------------------------------

typedef struct HfTokenizer HfTokenizer;

// A special token that stands in a text. Byte offsets.
typedef struct HfMatch {
  uint32_t id;
  size_t begin;  // with the white space that an lstrip or rstrip token swallows
  size_t end;
  size_t core_begin;  // the token's own characters
  size_t core_end;
} HfMatch;

typedef struct HfMatches {
  HfMatch* data;
  size_t size;
} HfMatches;

typedef enum HfTokenKind {
  HF_TOKEN_NONE = 0,     // no token has this id
  HF_TOKEN_PIECE = 1,    // of the model, in the byte-level alphabet
  HF_TOKEN_ADDED = 2,    // an added token, plain text
  HF_TOKEN_SPECIAL = 3,  // an added token that is special
} HfTokenKind;

// json: the content of a tokenizer.json. Truncation and padding it asks for are switched off.
// HF_INVALID: not a tokenizer.json, or one whose decoder is not ByteLevel.
HfStatus hf_tokenizer_new(HfText json, HfTokenizer** out);
void hf_tokenizer_free(HfTokenizer* tokenizer);

// recognise: special tokens written in the text become their ids; otherwise they are ordinary text.
// add_special: the post-processor adds its tokens.
HfStatus hf_tokenizer_encode(const HfTokenizer* tokenizer, HfText text, bool recognise,
                             bool add_special, HfIds* out);

// The special tokens that encoding with `recognise` would find, in order.
HfStatus hf_tokenizer_find_special(const HfTokenizer* tokenizer, HfText text, HfMatches* out);
void hf_matches_free(HfMatches matches);

// Ids without a token are skipped.
HfStatus hf_tokenizer_decode(const HfTokenizer* tokenizer, const uint32_t* ids, size_t count,
                             bool skip_special, HfBytes* out);

// Highest id + 1; 0 without any token.
HfStatus hf_tokenizer_id_limit(const HfTokenizer* tokenizer, uint64_t* out);

// The token as the file spells it, and its HfTokenKind.
HfStatus hf_tokenizer_token(const HfTokenizer* tokenizer, uint32_t id, HfBytes* text,
                            int32_t* kind);

// The id of a token as the file spells it; -1 if there is none.
HfStatus hf_tokenizer_token_id(const HfTokenizer* tokenizer, HfText token, int64_t* out);

// ---- Chat template ------------------------------------------------------------------------------

typedef struct HfTemplate HfTemplate;

typedef struct HfNamedText {
  HfText name;
  HfText value;
} HfNamedText;

typedef struct HfMessage {
  HfText role;
  HfText content;
} HfMessage;

// source: Jinja. globals: names the template may use, such as bos_token.
// HF_INVALID: a syntax error; the message names the line.
HfStatus hf_template_new(HfText source, const HfNamedText* globals, size_t global_count,
                         HfTemplate** out);
void hf_template_free(HfTemplate* chat);

// HF_INVALID: the template refused the messages, or ran out of steps or output space.
HfStatus hf_template_render(const HfTemplate* chat, const HfMessage* messages, size_t message_count,
                            bool add_generation_prompt, HfBytes* out);

#ifdef __cplusplus
}  // extern "C"
#endif
