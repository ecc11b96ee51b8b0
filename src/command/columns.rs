//! Text in columns.

/// Rows below a head, each column as wide as its widest cell; the last one is not filled up.
pub(super) fn columns<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(|cell| cell.chars().count());
    let rows: Vec<[String; N]> = rows.iter().map(|row| row.each_ref().map(|cell| plain(cell))).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    let head = head.map(str::to_owned);
    for row in std::iter::once(&head).chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A text from somewhere else that cannot move the cursor or colour the terminal.
pub(super) fn plain(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// `1 route`, `2 routes`
pub(super) fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_are_safe() {
        let rows = [["a".to_owned(), "b\u{1b}[2J".to_owned()], ["ääää".to_owned(), String::new()]];
        assert_eq!(columns(["x", "y"], &rows), "x     y\na     b\\u{1b}[2J\nääää\n");
        assert_eq!(count(1, "route") + &count(0, "route"), "1 route0 routes");
    }
}
