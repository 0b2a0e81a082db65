//! Aligns text in columns for a terminal, where a Chinese character is two cells wide.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Pads all columns but the last to the width of their longest cell.
pub fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or_default())
        .collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width()) + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Truncates text to `cells` terminal cells. Truncated text ends with an ellipsis.
pub fn fit(text: &str, cells: usize) -> String {
    if text.width() <= cells {
        return text.to_owned();
    }
    let (mut out, mut used) = (String::new(), 1);
    for c in text.chars() {
        used += c.width().unwrap_or_default();
        if used > cells {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_characters_are_two_cells_wide() {
        assert_eq!(fit("常州小程序", 6), "常州…");
        assert_eq!(fit("abc", 3), "abc");
        let rows = [vec!["常州".to_owned(), "x".to_owned()], vec!["ab".to_owned(), "y".to_owned()]];
        assert_eq!(align(&rows), "常州  x\nab    y\n");
    }
}
