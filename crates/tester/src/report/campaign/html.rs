//! The report as one HTML page, from a minijinja template.
//!
//! The page includes its style and figures: it loads nothing and needs no script. Users can supply their own template;
//! `docs/report.md` describes the available values.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, context};

use super::analysis::Analysis;
use super::numbers;
use super::plots::{figures, standings};
use super::table::Table;
use crate::report::chart::COLOURS;

/// The built-in template, also the starting point for user templates.
pub const TEMPLATE: &str = include_str!("report.html.jinja");

/// Style of all pages; templates include it as "style".
const STYLE: &str = include_str!("style.css.jinja");

/// An error in the template.
#[derive(Debug, thiserror::Error)]
#[error("template, line {line}: {reason}; docs/report.md lists what templates can use")]
pub struct ReportError {
    /// From 1.
    line: usize,
    /// Error of minijinja.
    reason: String,
}

impl From<Error> for ReportError {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        Self {
            line: error.line().unwrap_or(1),
            reason: match error.detail() {
                Some(detail) => format!("{kind}: {detail}"),
                None => kind.to_string(),
            },
        }
    }
}

/// Renders an analysis with a template's text, or with [`TEMPLATE`]. The same analysis gives the same octets. Every
/// text of the analysis is escaped.
///
/// # Errors
///
/// [`ReportError`]: the template does not parse, or uses an unknown name.
pub fn page(
    analysis: &Analysis,
    tables: &[Table],
    template: Option<&str>,
) -> Result<String, ReportError> {
    render(
        template.unwrap_or(TEMPLATE),
        context! {
            analysis => Value::from(Serde(analysis)),
            figures => Value::from(Serde(&figures(analysis))),
            bars => standings::bars(analysis),
            tables => Value::from(Serde(tables)),
        },
    )
}

/// Renders a template with these values.
///
/// # Errors
///
/// As of [`page`].
pub(super) fn render(template: &str, values: Value) -> Result<String, ReportError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?,
    );
    add_filters(&mut environment);
    environment.add_global("colours", Value::from(Serde(&COLOURS)));
    environment.add_template("style", STYLE)?;
    environment.add_template("report", template)?;
    let page = environment.get_template("report")?.render(values)?;
    Ok(page)
}

fn add_filters(environment: &mut Environment<'_>) {
    environment.add_filter("thousands", |value: &Value| {
        number(value, |v| numbers::decimal(v, 0))
    });
    environment.add_filter("decimal", |value: &Value, places: Option<usize>| {
        number(value, |v| numbers::decimal(v, places.unwrap_or(1)))
    });
    environment.add_filter("short", |value: &Value| number(value, numbers::short));
    environment.add_filter("rate", |value: &Value| number(value, numbers::rate));
    environment.add_filter("bytes", |value: &Value| number(value, numbers::bytes));
    environment.add_filter("duration", |value: &Value| number(value, numbers::duration));
    environment.add_filter("span", |value: &Value| number(value, numbers::span));
    environment.add_filter("probability", |value: &Value| {
        number(value, numbers::probability)
    });
}

/// Formats a number; a dash for a missing one, and an error for any other value.
fn number(value: &Value, text: impl Fn(f64) -> String) -> Result<String, Error> {
    if value.is_none() {
        return Ok(numbers::NOTHING.to_owned());
    }
    f64::try_from(value.clone()).map(text)
}

#[cfg(test)]
mod tests;
