//! Escapes text for LaTeX. Called by `bibtex`.

/// Escapes text for LaTeX. Braces become commands, because BibTeX counts `\{` as a brace too, so an unbalanced one would swallow
/// the entries that follow.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut previous = None;
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
            // Ligatures: LaTeX turns `--` into a dash, and `''` and `,,` into quotation marks.
            '-' | '\'' | ',' if previous == Some(c) => {
                out += "{}";
                out.push(c);
            }
            c => out.push(c),
        }
        previous = Some(c);
    }
    out
}
