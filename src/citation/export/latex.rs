//! Text that LaTeX sets as it is.

/// Escaped for LaTeX. Braces come as commands: BibTeX counts `\{` as a brace as well, so one alone would swallow
/// the entries that follow.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = None;
    for c in text.chars() {
        match c {
            '\\' => out += "\\textbackslash{}",
            '{' => out += "\\textbraceleft{}",
            '}' => out += "\\textbraceright{}",
            '~' => out += "\\textasciitilde{}",
            '^' => out += "\\textasciicircum{}",
            '`' => out += "\\textasciigrave{}",
            '<' => out += "\\textless{}",
            '>' => out += "\\textgreater{}",
            '|' => out += "\\textbar{}",
            '#' | '$' | '%' | '&' | '_' => out.extend(['\\', c]),
            // `--` and `''` would become a dash and a quotation mark.
            '-' | '\'' | ',' if before == Some(c) => {
                out += "{}";
                out.push(c);
            }
            c => out.push(c),
        }
        before = Some(c);
    }
    out
}
