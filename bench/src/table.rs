//! Markdown tables with aligned columns: readable in a terminal and in a document alike.

/// A table: one label column, then right-aligned figures.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub(crate) fn new(heads: Vec<String>) -> Self {
        Self { rows: vec![heads] }
    }

    /// Adds a row; a short one is filled up, a long one widens nothing and is cut.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as markdown, ending in a line break.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let cell = |row: &Vec<String>, at: usize| row.get(at).cloned().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|at| {
                self.rows.iter().map(|r| cell(r, at).chars().count()).max().unwrap_or(0).max(3)
            })
            .collect();
        let mut out = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            out.push('|');
            for (at, &width) in widths.iter().enumerate() {
                let text = cell(row, at);
                out += &match at {
                    0 => format!(" {text:<width$} |"),
                    _ => format!(" {text:>width$} |"),
                };
            }
            out.push('\n');
            if index == 0 {
                out.push('|');
                for (at, &width) in widths.iter().enumerate() {
                    out += &match at {
                        0 => format!("{:-<1$}|", "", width + 2),
                        _ => format!("{:-<1$}:|", "", width + 1),
                    };
                }
                out.push('\n');
            }
        }
        out
    }
}

/// A figure with so many decimals, or a dash.
pub(crate) fn figure(value: Option<f64>, decimals: usize) -> String {
    value.filter(|v| v.is_finite()).map_or_else(|| "–".to_owned(), |v| format!("{v:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_short_rows_are_filled() {
        let mut table = Table::new(vec!["target".into(), "GiB/s".into()]);
        table.row(vec!["a".into(), "1.5".into()]);
        table.row(vec!["longer name".into()]);
        let text = table.render();
        let widths: Vec<usize> = text.lines().map(|l| l.chars().count()).collect();
        assert_eq!(widths.len(), 4);
        assert!(widths.iter().all(|w| *w == widths[0]), "{text}");
        assert!(text.contains("| a           |   1.5 |"), "{text}");
        assert!(text.lines().nth(1).unwrap().ends_with(":|"));
    }

    #[test]
    fn what_is_no_number_is_a_dash() {
        assert_eq!(figure(Some(1.239), 2), "1.24");
        assert_eq!(figure(None, 2), "–");
        assert_eq!(figure(Some(f64::NAN), 2), "–");
    }
}
