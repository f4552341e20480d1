// SPDX-License-Identifier: Apache-2.0
//! What every exported function shares: the types of `hf_text.h`, conversions between them and
//! Rust's, and the guard that turns errors and panics into a status.

use std::any::Any;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::{ptr, slice};

const OK: i32 = 0;
const INVALID: i32 = 1;
const PANIC: i32 = 2;

/// Why a call failed, in words for the person who gave the input.
pub struct Invalid(String);

pub type Result<T> = std::result::Result<T, Invalid>;

impl Invalid {
    pub fn new(message: impl ToString) -> Self {
        Invalid(message.to_string())
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct HfText {
    data: *const c_char,
    size: usize,
}

/// An owned array: `HfBytes`, `HfIds` and `HfMatches` of the header.
#[repr(C)]
pub struct Owned<T> {
    data: *mut T,
    size: usize,
}

#[repr(C)]
pub struct HfStatus {
    code: i32,
    message: Owned<u8>,
}

impl<T> Owned<T> {
    pub fn empty() -> Self {
        Owned { data: ptr::null_mut(), size: 0 }
    }

    /// # Safety
    /// `self` came from `From<Vec<T>>` and was not freed before.
    pub unsafe fn free(self) {
        if !self.data.is_null() {
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.data, self.size)) });
        }
    }
}

impl<T> From<Vec<T>> for Owned<T> {
    fn from(values: Vec<T>) -> Self {
        let size = values.len();
        Owned { data: Box::into_raw(values.into_boxed_slice()).cast(), size }
    }
}

impl HfText {
    /// # Safety
    /// The text stays alive and unchanged for `'a`.
    pub unsafe fn get<'a>(self) -> Result<&'a str> {
        let bytes = unsafe { array(self.data.cast::<u8>(), self.size) }?;
        std::str::from_utf8(bytes)
            .map_err(|error| Invalid(format!("not UTF-8 at byte {}", error.valid_up_to())))
    }
}

/// # Safety
/// `data` is null or points at `size` values that stay alive and unchanged for `'a`.
pub unsafe fn array<'a, T>(data: *const T, size: usize) -> Result<&'a [T]> {
    match (data.is_null(), size) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Invalid::new("null array")),
        (false, _) => Ok(unsafe { slice::from_raw_parts(data, size) }),
    }
}

/// # Safety
/// `handle` is null or a live handle.
pub unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T> {
    unsafe { handle.as_ref() }.ok_or_else(|| Invalid::new("null handle"))
}

/// # Safety
/// `out` is null or may be written.
pub unsafe fn put<T>(out: *mut T, value: T) -> Result<()> {
    if out.is_null() {
        return Err(Invalid::new("null out parameter"));
    }
    unsafe { out.write(value) };
    Ok(())
}

/// Runs the body of an exported function. Nothing unwinds past it.
pub fn guard(body: impl FnOnce() -> Result<()>) -> HfStatus {
    // The default hook would print each panic; ours reach the caller in the status instead.
    static SILENCE: Once = Once::new();
    SILENCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => HfStatus { code: OK, message: Owned::empty() },
        Ok(Err(Invalid(message))) => failure(INVALID, message),
        Err(payload) => failure(PANIC, panic_text(&*payload)),
    }
}

fn failure(code: i32, message: String) -> HfStatus {
    HfStatus { code, message: message.into_bytes().into() }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_string())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_bytes_free(bytes: Owned<u8>) {
    unsafe { bytes.free() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_ids_free(ids: Owned<u32>) {
    unsafe { ids.free() }
}
