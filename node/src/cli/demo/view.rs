//! What the demo looks like.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph};
use unisono_chaos::fault::Fault;
use unisono_chaos::report::Percentiles;
use unisono_chaos::row::{SeenRow, Values};
use unisono_chaos::run::{NodeState, Progress};

use super::curve::{SPAN_SECONDS, points};

const REPLICAS_WIDTH: u16 = 34;
const LOWER_HEIGHT: u16 = 7;
/// A terminal with less has no room for the rows beside the curve: 80x24 is one.
const ROOMY: (u16, u16) = (110, 30);

/// Draws one moment; `ending`: the user asked for the end.
pub(super) fn draw(frame: &mut Frame<'_>, progress: &Progress, ending: bool) {
    let size = frame.area();
    let roomy = size.width >= ROOMY.0 && size.height >= ROOMY.1;
    let lowest = if roomy { 8 } else { 5 };
    let rows = [
        Constraint::Length(1),
        Constraint::Min(8),
        Constraint::Length(LOWER_HEIGHT),
        Constraint::Length(lowest),
        Constraint::Length(1),
    ];
    let [title, chart, middle, lowest, footer] = Layout::vertical(rows).areas(size);
    frame.render_widget(title_line(progress), title);
    draw_curve(frame, progress, chart);
    if roomy {
        let columns = [
            Constraint::Length(REPLICAS_WIDTH),
            Constraint::Length(36),
            Constraint::Min(20),
        ];
        let [replicas, numbers, events] = Layout::horizontal(columns).areas(middle);
        frame.render_widget(replica_panel(progress), replicas);
        frame.render_widget(number_panel(progress), numbers);
        frame.render_widget(event_panel(progress, events.height), events);
        frame.render_widget(row_panel(progress, lowest.height), lowest);
    } else {
        let columns = [Constraint::Length(REPLICAS_WIDTH), Constraint::Min(20)];
        let [replicas, numbers] = Layout::horizontal(columns).areas(middle);
        frame.render_widget(replica_panel(progress), replicas);
        frame.render_widget(number_panel(progress), numbers);
        frame.render_widget(event_panel(progress, lowest.height), lowest);
    }
    let help = if ending {
        "q again breaks off without a verdict"
    } else {
        "q ends"
    };
    frame.render_widget(Line::from(help).style(Color::DarkGray), footer);
}

fn title_line(progress: &Progress) -> Line<'static> {
    let name = Span::styled("unisono demo  ", Modifier::BOLD);
    let seconds = progress.elapsed.as_secs_f64();
    Line::from(vec![
        name,
        Span::raw(format!("{seconds:5.1} s  {}", progress.phase)),
    ])
}

fn draw_curve(frame: &mut Frame<'_>, progress: &Progress, area: Rect) {
    let curve = points(&progress.picture.curve, progress.now_ms);
    let highest = curve.iter().map(|point| point.1).fold(1.0, f64::max);
    // Some room above, and a round number that does not change with every row.
    let highest = (highest * 1.1 / 50.0).ceil() * 50.0;
    let fault_marks = fault_marks(progress, highest);
    let line = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .style(Color::Cyan)
        .data(&curve);
    let faults = Dataset::default()
        .marker(Marker::Dot)
        .style(Color::Red)
        .data(&fault_marks);
    let x_axis = Axis::default()
        .bounds([-SPAN_SECONDS, 0.0])
        .labels(["-20 s", "-10 s", "now"]);
    let y_axis = Axis::default().bounds([0.0, highest]).labels([
        "0".to_owned(),
        format!("{:.0}", highest / 2.0),
        format!("{highest:.0}"),
    ]);
    let title = " paid orders per 100 ms, as published; red: the leader meets a fault ";
    let chart = Chart::new(vec![faults, line])
        .block(Block::bordered().title(title))
        .legend_position(None)
        .x_axis(x_axis)
        .y_axis(y_axis);
    frame.render_widget(chart, area);
}

/// A dotted vertical line for each fault that is still in sight.
fn fault_marks(progress: &Progress, highest: f64) -> Vec<(f64, f64)> {
    let in_sight = progress.fault_times.iter().filter_map(|&at_ms| {
        let seconds = (at_ms - progress.now_ms) as f64 / 1_000.0;
        (seconds > -SPAN_SECONDS).then_some(seconds)
    });
    in_sight
        .flat_map(|seconds| (0..=20).map(move |step| (seconds, highest * f64::from(step) / 20.0)))
        .collect()
}

fn replica_panel(progress: &Progress) -> Paragraph<'static> {
    let line = |(number, state): (&u16, &NodeState)| {
        let (text, style) = match state {
            NodeState::Up { role, term } if role == "leader" => (
                format!("leads, term {term}"),
                Style::new().fg(Color::Green).bold(),
            ),
            NodeState::Up { role, term } => (format!("{role}, term {term}"), Style::new()),
            NodeState::Silent => ("does not answer".into(), Color::Yellow.into()),
            NodeState::Killed => ("killed".into(), Style::new().fg(Color::Red).bold()),
        };
        Line::from(vec![
            Span::raw(format!("replica {number}  ")),
            Span::styled(text, style),
        ])
    };
    let lines: Vec<Line<'static>> = progress.nodes.iter().map(line).collect();
    Paragraph::new(lines).block(Block::bordered().title(" replicas "))
}

fn number_panel(progress: &Progress) -> Paragraph<'static> {
    let verdict = &progress.verdict;
    let clean = if verdict.is_clean() {
        Color::Green
    } else {
        Color::Red
    };
    let faults = format!(
        "{} gaps  {} duplicates  {} wrong",
        verdict.gaps, verdict.duplicates, verdict.wrong
    );
    let mut lines = vec![
        Line::from(format!(
            "{} orders, {} rows",
            progress.orders, progress.picture.rows
        )),
        Line::from(Span::styled(faults, Style::new().fg(clean).bold())),
    ];
    lines.extend(fault_lines(progress).into_iter().map(Line::from));
    Paragraph::new(lines).block(Block::bordered().title(" checked independently "))
}

/// Deaths in two lines, and all leaders that lived and were unfit in one.
fn fault_lines(progress: &Progress) -> Vec<String> {
    let mut lines = Vec::new();
    let mut unfit = Vec::new();
    for (fault, times) in &progress.times {
        match (fault, Percentiles::of(times)) {
            (Fault::Kill, Some(Percentiles { p50, max, .. })) => {
                lines.push(format!("{} leaders killed: next row after", times.len()));
                lines.push(format!("  p50 {p50:.0} ms, max {max:.0} ms"));
            }
            _ => unfit.extend(times),
        }
    }
    if let Some(Percentiles { p50, max, .. }) = Percentiles::of(&unfit) {
        let count = unfit.len();
        lines.push(format!("{count} unfit: p50 {p50:.0} ms, max {max:.0} ms"));
    }
    lines
}

fn event_panel(progress: &Progress, height: u16) -> Paragraph<'static> {
    let room = usize::from(height.saturating_sub(2));
    let skipped = progress.events.len().saturating_sub(room);
    let line = |(_, at, text): &(u64, std::time::Duration, String)| {
        Line::from(format!("{:5.1} s  {text}", at.as_secs_f64()))
    };
    let lines: Vec<Line<'static>> = progress.events.iter().skip(skipped).map(line).collect();
    Paragraph::new(lines).block(Block::bordered().title(" what happens "))
}

fn row_panel(progress: &Progress, height: u16) -> Paragraph<'static> {
    let newest = &progress.picture.newest;
    let room = usize::from(height.saturating_sub(2));
    let shown = newest.iter().skip(newest.len().saturating_sub(room));
    let lines: Vec<Line<'static>> = shown.map(|row| Line::from(row_line(row))).collect();
    Paragraph::new(lines).block(Block::bordered().title(" last rows "))
}

fn row_line(row: &SeenRow) -> String {
    let (end_ms, city) = &row.key;
    let millis = end_ms.rem_euclid(86_400_000);
    let (seconds, millis) = (millis / 1_000, millis % 1_000);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let Values {
        orders,
        revenue,
        average,
        lowest,
        highest,
    } = &row.values;
    format!(
        "{:>6}  up to {hour:02}:{minute:02}:{second:02}.{millis:03}  {city:<10} {orders:>5} orders  \
         revenue {revenue:<10} average {average:<21} lowest {lowest:<7} highest {highest}",
        row.seq
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn screen(progress: &Progress, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, progress, false)).unwrap();
        terminal.backend().to_string()
    }

    fn progress() -> Progress {
        let mut progress = Progress {
            phase: "running",
            now_ms: 30_000,
            ..Progress::default()
        };
        progress.picture.curve = (200..299).map(|window| (window * 100, 160)).collect();
        progress.nodes.insert(1, NodeState::Killed);
        progress.nodes.insert(
            2,
            NodeState::Up {
                role: "leader".into(),
                term: 7,
            },
        );
        let times = |millis| vec![Duration::from_millis(millis)];
        progress.times = [
            (Fault::Kill, times(184)),
            (Fault::Blind, times(411)),
            (Fault::Drift, times(97)),
        ]
        .into();
        progress.fault_times = vec![25_000];
        let row = r#"{"pipeline":"orders","seq":7,"revision":0,"start":"1970-01-01T01:02:03.900Z","end":"1970-01-01T01:02:04Z","group":{"city":"Lima"},"values":{"orders":2,"revenue":0.3,"average":0.15,"lowest":0.1,"highest":0.2}}"#;
        progress.picture.newest = vec![Arc::new(SeenRow::parse(row).unwrap())];
        progress
    }

    #[test]
    fn a_viewer_sees_who_leads_who_died_and_the_verdict_so_far() {
        let screen = screen(&progress(), 120, 40);
        for text in [
            "replica 1  killed",
            "replica 2  leads, term 7",
            "1 leaders killed: next row after",
            "p50 184 ms, max 184 ms",
            "2 unfit: p50 97 ms, max 411 ms",
        ] {
            assert!(screen.contains(text), "{text} is missing in\n{screen}");
        }
        assert!(screen.contains("0 gaps  0 duplicates  0 wrong"));
        assert!(screen.contains("7  up to 01:02:04.000  Lima           2 orders  revenue 0.3"));
    }

    #[test]
    fn an_80x24_terminal_shows_the_curve_and_whole_words() {
        let screen = screen(&progress(), 80, 24);
        for text in [
            "replica 1  killed",
            "0 gaps  0 duplicates  0 wrong",
            "what happens",
        ] {
            assert!(screen.contains(text), "{text} is missing in\n{screen}");
        }
        // The mark of a kill stands on each line but those that the curve crosses.
        let plotted = screen.lines().filter(|line| line.contains('•')).count();
        assert!(plotted >= 5, "the curve has {plotted} lines in\n{screen}");
    }

    #[test]
    fn a_tiny_terminal_is_no_reason_to_panic() {
        for (width, height) in [(1, 1), (20, 5), (80, 24)] {
            screen(&progress(), width, height);
        }
    }
}
