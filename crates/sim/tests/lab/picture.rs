//! The picture `docs/pictures/when.svg`: when an append returns, when its position is known, and
//! when readers have the record, in message delays.
//!
//! `SERIATIM_TABLE=write cargo test -p seriatim-sim --test lab` writes the picture.

use std::fmt::Write as _;
use std::path::Path;

use seriatim_model::{Durability, Order};

use crate::costs::{self, Costs};

const PICTURE: &str = "../../docs/pictures/when.svg";

/// Width of the column with the names, in pixels.
const LEFT: u64 = 92;
/// Pixels for each message delay.
const DELAY: u64 = 68;
/// Number of message delays on the axis.
const DELAYS: u64 = 9;
/// Top of the first row, in pixels.
const TOP: u64 = 70;
/// Height of a row, in pixels.
const ROW: u64 = 54;

const STYLE: &str = "
  text { font: 14px system-ui, sans-serif; fill: #1f2328; }
  .name { font-weight: 600; }
  .small { font-size: 12px; fill: #59636e; }
  .grid { stroke: #d1d9e0; }
  .way { fill: #d1d9e0; }
  .returns { fill: #1a7f37; } .position { fill: #0969da; } .readable { fill: #8250df; }
  .prediction { fill: none; stroke: #8250df; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc; }
    .small { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .way { fill: #3d444d; }
    .returns { fill: #3fb950; } .position { fill: #4493f8; } .readable { fill: #ab7df8; }
    .prediction { stroke: #ab7df8; }
  }
";

/// An event of an append, as a small shape with its centre at a point.
#[derive(Clone, Copy)]
enum Mark {
    Returns,
    Position,
    Readable,
    Prediction,
}

impl Mark {
    const ALL: [Self; 4] = [Self::Returns, Self::Position, Self::Readable, Self::Prediction];

    fn meaning(self) -> &'static str {
        match self {
            Self::Returns => "append returns",
            Self::Position => "position known",
            Self::Readable => "readable",
            Self::Prediction => "prediction readable",
        }
    }

    fn at(self, x: u64, y: u64) -> String {
        match self {
            Self::Returns => format!(r#"<circle class="returns" cx="{x}" cy="{y}" r="6"/>"#),
            Self::Position => {
                let (left, right, above, below) = (x - 7, x + 7, y - 7, y + 7);
                format!(r#"<path class="position" d="M{left} {y} {x} {above} {right} {y} {x} {below}z"/>"#)
            }
            Self::Readable => square("readable", x, y),
            Self::Prediction => square("prediction", x, y),
        }
    }

    /// When the event happens, in message delays. `None` if the ordering makes no prediction.
    fn when(self, costs: &Costs) -> Option<u64> {
        let spent = match self {
            Self::Returns => costs.acknowledged,
            Self::Position => costs.bound,
            Self::Readable => costs.delivered,
            Self::Prediction => Some(costs.foretold).filter(|foretold| *foretold < costs.delivered)?,
        };
        Some(spent.delays())
    }
}

fn square(class: &str, x: u64, y: u64) -> String {
    let (left, top) = (x - 5, y - 5);
    format!(r#"<rect class="{class}" x="{left}" y="{top}" width="10" height="10"/>"#)
}

fn picture(rows: &[(Order, Costs)]) -> String {
    let (width, height) = (LEFT + DELAYS * DELAY + 40, TOP + rows.len() as u64 * ROW + 44);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\">\n<title>When an append returns, when its position is known, \
         and when it is readable, for each ordering</title>\n<style>{STYLE}</style>\n"
    );
    let mut line = |text: String| writeln!(svg, "{text}").expect("a string takes everything");
    let legend = Mark::ALL.iter().zip([LEFT, LEFT + 140, LEFT + 290, LEFT + 400]);
    for (mark, x) in legend {
        line(mark.at(x, 22) + &format!(r#"<text x="{}" y="27">{}</text>"#, x + 14, mark.meaning()));
    }
    let bottom = TOP + rows.len() as u64 * ROW;
    for delay in 0..=DELAYS {
        let x = LEFT + delay * DELAY;
        line(format!(r#"<path class="grid" d="M{x} {}V{bottom}"/>"#, TOP - 18));
        line(format!(
            r#"<text class="small" x="{x}" y="{}" text-anchor="middle">{delay}</text>"#,
            bottom + 16
        ));
    }
    let axis = "message delays after the append begins; two delays are one round trip";
    line(format!(r#"<text class="small" x="{LEFT}" y="{}">{axis}</text>"#, bottom + 36));
    for ((order, costs), top) in rows.iter().zip((TOP..).step_by(ROW as usize)) {
        line(format!(r#"<text class="name" x="0" y="{}">{order}</text>"#, top + 16));
        let marks = Mark::ALL.map(|mark| mark.when(costs));
        let last = marks.iter().flatten().max().expect("each append returns");
        line(format!(
            r#"<rect class="way" x="{LEFT}" y="{}" width="{}" height="4"/>"#,
            top + 9,
            last * DELAY
        ));
        // Marks of events at the same time are one below the other.
        for (number, (mark, when)) in (0..).zip(Mark::ALL.iter().zip(marks)) {
            let Some(when) = when else { continue };
            let before = marks[..number].iter().filter(|other| **other == Some(when)).count() as u64;
            line(mark.at(LEFT + when * DELAY, top + 11 + 15 * before));
        }
    }
    svg + "</svg>\n"
}

#[test]
fn the_picture_shows_the_measured_delays() {
    let (default, others): (Vec<Order>, Vec<Order>) =
        Order::ALL.into_iter().partition(|order| *order == Order::default());
    let rows: Vec<(Order, Costs)> = default
        .into_iter()
        .chain(others)
        .map(|order| (order, costs::measure(order, Durability::Memory)))
        .collect();
    let svg = picture(&rows);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE);
    if std::env::var("SERIATIM_TABLE").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &svg).expect("the picture can be written");
    }
    let found = std::fs::read_to_string(&path).expect("the picture is there");
    assert!(found == svg, "{PICTURE} differs (SERIATIM_TABLE=write writes it)");
}
