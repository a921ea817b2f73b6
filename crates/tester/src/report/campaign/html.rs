//! The report as one HTML page, from a minijinja template.
//!
//! The page includes its style and figures: it loads nothing and needs no script.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, context};

use super::analysis::Analysis;
use super::plots::{figures, standings};
use super::table::Table;
use crate::report::chart::COLOURS;

/// The template of the page.
const TEMPLATE: &str = include_str!("report.html.jinja");

/// Its style.
const STYLE: &str = include_str!("style.css.jinja");

/// Renders an analysis. The same analysis gives the same octets. Every text of the analysis is escaped.
///
/// # Errors
///
/// None with a correct [`TEMPLATE`].
pub(super) fn page(analysis: &Analysis, tables: &[Table]) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    environment.add_template("style", STYLE)?;
    environment.add_template("report", TEMPLATE)?;
    environment.get_template("report")?.render(context! {
        analysis => Value::from(Serde(analysis)),
        bars => standings::bars(analysis),
        colours => Value::from(Serde(&COLOURS)),
        figures => Value::from(Serde(&figures(analysis))),
        tables => Value::from(Serde(tables)),
    })
}

#[cfg(test)]
mod tests;
