// SPDX-License-Identifier: Apache-2.0
//! `{% generation %} … {% endgeneration %}`: a Hugging Face extension that marks what an assistant
//! said, for training. Rendering ignores it.

/// Replaces the two tags by ones that do nothing. They are not simply dropped because a tag's white
/// space control (`{%-`, trim_blocks, lstrip_blocks) must keep working.
pub fn neutralise(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at + 2);
        out.push_str(before);
        rest = tag;
        let name = tag.trim_start_matches(['-', '+']).trim_start();
        for (word, replacement) in [("generation", "if true"), ("endgeneration", "endif")] {
            if let Some(end) = name.strip_prefix(word).filter(|end| closes(end)) {
                out.push_str(&tag[..tag.len() - name.len()]);
                out.push_str(replacement);
                rest = end;
            }
        }
    }
    out.push_str(rest);
    out
}

fn closes(end: &str) -> bool {
    end.trim_start().trim_start_matches(['-', '+']).starts_with("%}")
}
