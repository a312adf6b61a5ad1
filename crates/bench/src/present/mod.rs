//! Results as text, Markdown, HTML and SVG.

mod chart;
mod grid;
mod html;
mod interference;
mod machine;
pub mod number;
mod pace;
mod picture;
mod storms;
mod table;
mod text;

pub use html::{comparison_page, report_page};
pub use picture::{Curve, Panels, Picture};
pub use table::{comparison_markdown, comparison_text};
pub use text::report_text;
