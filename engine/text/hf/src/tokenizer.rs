// SPDX-License-Identifier: Apache-2.0
//! A tokenizer.json. The pipeline (added tokens, normaliser, pre-tokeniser, model) is the library's;
//! it is spelled out in `encode` so that one model serves both readings of special tokens.

use crate::ffi::{HfStatus, HfText, Invalid, Owned, Result, array, guard, handle, put};
use std::ptr;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::tokenizer::{AddedVocabulary, OffsetReferential, OffsetType};
use tokenizers::{Model, PreTokenizer, Tokenizer};

const KIND_NONE: i32 = 0;
const KIND_PIECE: i32 = 1;
const KIND_ADDED: i32 = 2;
const KIND_SPECIAL: i32 = 3;

pub struct HfTokenizer {
    tokenizer: Tokenizer,
    /// The tokenizer's added tokens, with special ones read as ordinary text.
    as_text: AddedVocabulary,
}

#[repr(C)]
pub struct HfMatch {
    id: u32,
    begin: usize,
    end: usize,
    core_begin: usize,
    core_end: usize,
}

impl HfTokenizer {
    fn new(json: &str) -> Result<Self> {
        let mut tokenizer: Tokenizer = json.parse().map_err(Invalid::new)?;
        if !tokenizer.get_decoder().is_some_and(is_byte_level) {
            return Err(Invalid::new("decoder is not ByteLevel"));
        }
        // A silently shortened prompt is worse than one that is too long.
        tokenizer.with_truncation(None).map_err(Invalid::new)?.with_padding(None);
        let mut as_text = tokenizer.get_added_vocabulary().clone();
        as_text.set_encode_special_tokens(true);
        Ok(HfTokenizer { tokenizer, as_text })
    }

    fn encode(&self, text: &str, recognise: bool, add_special: bool) -> Result<Vec<u32>> {
        let added = if recognise { self.tokenizer.get_added_vocabulary() } else { &self.as_text };
        let mut pieces = added.extract_and_normalize(self.tokenizer.get_normalizer(), text);
        if let Some(pre_tokenizer) = self.tokenizer.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(Invalid::new)?;
        }
        let model = self.tokenizer.get_model();
        model.tokenize_in_pretokenized(&mut pieces, None).map_err(Invalid::new)?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None).map_err(Invalid::new)?;
        let encoding = self.tokenizer.post_process(encoding, None, add_special);
        Ok(encoding.map_err(Invalid::new)?.get_ids().to_vec())
    }

    fn find_special(&self, text: &str) -> Vec<HfMatch> {
        let added = self.tokenizer.get_added_vocabulary();
        let pieces = added.extract_and_normalize(self.tokenizer.get_normalizer(), text);
        let splits = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let found = splits.into_iter().filter_map(|(_, (begin, end), tokens)| {
            let id = tokens.as_ref()?.first()?.id;
            let token = added.get_added_tokens_decoder().get(&id)?;
            // A token that matches normalised text may not occur literally: then all of it counts.
            let at = text[begin..end].find(&token.content);
            let core_begin = begin + at.unwrap_or(0);
            let core_end = at.map_or(end, |_| core_begin + token.content.len());
            token.special.then_some(HfMatch { id, begin, end, core_begin, core_end })
        });
        found.collect()
    }

    fn token(&self, id: u32) -> (String, i32) {
        if let Some(token) =
            self.tokenizer.get_added_vocabulary().get_added_tokens_decoder().get(&id)
        {
            return (token.content.clone(), if token.special { KIND_SPECIAL } else { KIND_ADDED });
        }
        match self.tokenizer.get_model().id_to_token(id) {
            Some(piece) => (piece, KIND_PIECE),
            None => (String::new(), KIND_NONE),
        }
    }

    fn id_limit(&self) -> u64 {
        self.tokenizer.get_vocab(true).values().map(|id| u64::from(*id) + 1).max().unwrap_or(0)
    }
}

fn is_byte_level(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteLevel(_) => true,
        DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().any(is_byte_level),
        _ => false,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_tokenizer_new(json: HfText, out: *mut *mut HfTokenizer) -> HfStatus {
    guard(|| unsafe {
        put(out, ptr::null_mut())?;
        put(out, Box::into_raw(Box::new(HfTokenizer::new(json.get()?)?)))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_tokenizer_free(tokenizer: *mut HfTokenizer) {
    if !tokenizer.is_null() {
        drop(unsafe { Box::from_raw(tokenizer) });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_tokenizer_encode(
    tokenizer: *const HfTokenizer,
    text: HfText,
    recognise: bool,
    add_special: bool,
    out: *mut Owned<u32>,
) -> HfStatus {
    guard(|| unsafe {
        put(out, handle(tokenizer)?.encode(text.get()?, recognise, add_special)?.into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_tokenizer_find_special(
    tokenizer: *const HfTokenizer,
    text: HfText,
    out: *mut Owned<HfMatch>,
) -> HfStatus {
    guard(|| unsafe { put(out, handle(tokenizer)?.find_special(text.get()?).into()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_matches_free(matches: Owned<HfMatch>) {
    unsafe { matches.free() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_tokenizer_decode(
    tokenizer: *const HfTokenizer,
    ids: *const u32,
    count: usize,
    skip_special: bool,
    out: *mut Owned<u8>,
) -> HfStatus {
    guard(|| unsafe {
        let text = handle(tokenizer)?.tokenizer.decode(array(ids, count)?, skip_special);
        put(out, text.map_err(Invalid::new)?.into_bytes().into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_tokenizer_id_limit(
    tokenizer: *const HfTokenizer,
    out: *mut u64,
) -> HfStatus {
    guard(|| unsafe { put(out, handle(tokenizer)?.id_limit()) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_tokenizer_token(
    tokenizer: *const HfTokenizer,
    id: u32,
    text: *mut Owned<u8>,
    kind: *mut i32,
) -> HfStatus {
    guard(|| unsafe {
        let (token, token_kind) = handle(tokenizer)?.token(id);
        put(kind, token_kind)?;
        put(text, token.into_bytes().into())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_tokenizer_token_id(
    tokenizer: *const HfTokenizer,
    token: HfText,
    out: *mut i64,
) -> HfStatus {
    guard(|| unsafe {
        let id = handle(tokenizer)?.tokenizer.token_to_id(token.get()?);
        put(out, id.map_or(-1, i64::from))
    })
}
