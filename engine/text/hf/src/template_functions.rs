// SPDX-License-Identifier: Apache-2.0
//! The functions and the filter that `transformers` gives to chat templates.

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::ffi::CString;
use std::io::{Result as IoResult, Write};

/// A template refuses its messages.
pub fn raise_exception(message: String) -> Result<String, Error> {
    Err(refusal(message))
}

/// Local time, in the words of C's strftime (which is Python's, too).
pub fn strftime_now(format: String) -> Result<String, Error> {
    const LIMIT: usize = 4096;
    let format = CString::new(format).map_err(|_| refusal("strftime_now: NUL in the format"))?;
    let mut buffer = vec![0u8; LIMIT];
    // SAFETY: all pointers are to live values of the right type; strftime writes at most LIMIT bytes.
    let size = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts = std::mem::zeroed::<libc::tm>();
        if libc::localtime_r(&now, &mut parts).is_null() {
            return Err(refusal("strftime_now: no local time"));
        }
        libc::strftime(buffer.as_mut_ptr().cast(), LIMIT, format.as_ptr(), &parts)
    };
    buffer.truncate(size);
    String::from_utf8(buffer).map_err(|_| refusal("strftime_now: the result is not UTF-8"))
}

/// Python's json.dumps(value, ensure_ascii=False, indent=indent).
pub fn tojson(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    options.get::<Option<bool>>("ensure_ascii")?; // accepted: Hugging Face's default is ours
    options.assert_all_used()?;
    let json = match indent {
        Some(width) if width > MAX_INDENT => return Err(refusal("tojson: indent is above 64")),
        Some(width) => to_json(&value, PrettyFormatter::with_indent(&[b' '; MAX_INDENT][..width])),
        None => to_json(&value, PythonFormatter),
    };
    Ok(Value::from_safe_string(json?))
}

const MAX_INDENT: usize = 64;

/// Python writes a space after each comma and colon.
struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> IoResult<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> IoResult<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> IoResult<()> {
        out.write_all(b": ")
    }
}

fn to_json(value: &Value, formatter: impl Formatter) -> Result<String, Error> {
    let mut out = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut out, formatter);
    value.serialize(&mut serializer).map_err(|error| refusal(format!("tojson: {error}")))?;
    String::from_utf8(out).map_err(|_| refusal("tojson: the result is not UTF-8"))
}

fn refusal(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
