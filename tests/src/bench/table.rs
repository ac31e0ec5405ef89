//! Figures as Markdown, as the documentation shows them.

/// The middle of some figures; the mean of the two in the middle of an even number.
///
/// # Panics
/// Without figures.
#[must_use]
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted[sorted.len() / 2];
    let lower = sorted[(sorted.len() - 1) / 2];
    f64::midpoint(lower, upper)
}

/// The median, and where there are several figures the least and the most.
///
/// # Panics
/// Without figures.
#[must_use]
pub fn figure(figures: &[f64], digits: usize) -> String {
    let middle = median(figures);
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    let most = figures.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if figures.len() == 1 {
        format!("{middle:.digits$}")
    } else {
        format!("{middle:.digits$} ({least:.digits$} to {most:.digits$})")
    }
}

/// A table that grows by lines and is printed as a whole.
#[derive(Debug)]
pub struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    /// One with these headings.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        let headings = headings.iter().map(|&text| text.to_owned()).collect();
        Self {
            lines: vec![headings],
        }
    }

    /// Adds a line.
    pub fn line(&mut self, cells: &[String]) {
        self.lines.push(cells.to_vec());
    }

    /// Writes it to the standard output.
    pub fn print(&self) {
        for (at, cells) in self.lines.iter().enumerate() {
            println!("| {} |", cells.join(" | "));
            if at == 0 {
                println!("|{}", "---|".repeat(cells.len()));
            }
        }
    }
}
