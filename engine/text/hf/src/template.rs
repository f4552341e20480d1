// SPDX-License-Identifier: Apache-2.0
//! A chat template, set up as `transformers` sets up Jinja.

use crate::ffi::{HfStatus, HfText, Invalid, Owned, Result, array, guard, handle, put};
use crate::generation_tag::neutralise;
use crate::template_functions::{raise_exception, strftime_now, tojson};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, ErrorKind, Value, context};
use std::{io, ptr};

/// Instructions one rendering may take: some ten thousand messages, or a second of an endless loop.
const STEP_BUDGET: u64 = 2_000_000;
/// Bytes one rendering may write; far above any context window.
const MAX_OUTPUT: usize = 64 << 20;
const NAME: &str = "chat_template";

pub struct HfTemplate {
    environment: Environment<'static>,
}

#[repr(C)]
pub struct HfNamedText {
    name: HfText,
    value: HfText,
}

#[repr(C)]
pub struct HfMessage {
    role: HfText,
    content: HfText,
}

impl HfTemplate {
    fn new(source: &str, globals: Vec<(String, String)>) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(Invalid::new)?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_fuel(Some(STEP_BUDGET));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", tojson);
        for (name, value) in globals {
            environment.add_global(name, value);
        }
        environment.add_template_owned(NAME, neutralise(source)).map_err(describe)?;
        Ok(HfTemplate { environment })
    }

    fn render(&self, messages: Vec<Value>, add_generation_prompt: bool) -> Result<Vec<u8>> {
        let template = self.environment.get_template(NAME).map_err(describe)?;
        // Templates ask `tools is none`: absent must be None and not undefined.
        let absent = Value::from(());
        let variables = context! {
            messages, add_generation_prompt, tools => absent.clone(), documents => absent
        };
        let mut out = Bounded(Vec::new());
        template.render_captured_to(variables, &mut out).map_err(describe)?;
        Ok(out.0)
    }
}

/// A buffer that refuses to grow past MAX_OUTPUT.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > MAX_OUTPUT - self.0.len() {
            return Err(io::Error::other(format!("output is longer than {MAX_OUTPUT} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The template's own words where it has some, and where in the template.
fn describe(error: minijinja::Error) -> Invalid {
    let line = error.line().map_or_else(String::new, |line| format!(" (line {line})"));
    let words = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => format!("took more than {STEP_BUDGET} steps"),
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_string(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let cause = std::error::Error::source(&error);
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    Invalid::new(format!("{words}{line}{cause}"))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_template_new(
    source: HfText,
    globals: *const HfNamedText,
    global_count: usize,
    out: *mut *mut HfTemplate,
) -> HfStatus {
    guard(|| unsafe {
        put(out, ptr::null_mut())?;
        let globals = array(globals, global_count)?
            .iter()
            .map(|global| Ok((global.name.get()?.to_owned(), global.value.get()?.to_owned())))
            .collect::<Result<Vec<_>>>()?;
        put(out, Box::into_raw(Box::new(HfTemplate::new(source.get()?, globals)?)))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_template_free(chat: *mut HfTemplate) {
    if !chat.is_null() {
        drop(unsafe { Box::from_raw(chat) });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hf_template_render(
    chat: *const HfTemplate,
    messages: *const HfMessage,
    message_count: usize,
    add_generation_prompt: bool,
    out: *mut Owned<u8>,
) -> HfStatus {
    guard(|| unsafe {
        let messages = array(messages, message_count)?
            .iter()
            .map(|message| {
                Ok(context! { role => message.role.get()?, content => message.content.get()? })
            })
            .collect::<Result<Vec<Value>>>()?;
        put(out, handle(chat)?.render(messages, add_generation_prompt)?.into())
    })
}
