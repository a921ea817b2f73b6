//! The two text formats of a metrics page, OpenMetrics 1.0 and the older Prometheus format, and content negotiation
//! between them. Part of both programs, which have no common crate for it.

/// A format of a metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus text format, version 0.0.4: browsers display it and every collector reads it.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The format that the value of an `Accept` field prefers (RFC 9110 section 12.5.1); several fields are joined by
    /// commas. The default is the Prometheus format.
    pub(crate) fn preferred(accept: &str) -> Self {
        let text = weight(accept, "text", "plain", "0.0.4");
        match weight(accept, "application", "openmetrics-text", "1.0.0") {
            open_metrics if open_metrics > text => Self::OpenMetrics,
            _ => Self::Text,
        }
    }

    /// The value of the field `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts a page from OpenMetrics to this format.
    pub(crate) fn page(self, open_metrics: String) -> String {
        match self {
            Self::Text => to_text(&open_metrics),
            Self::OpenMetrics => open_metrics,
        }
    }
}

/// The weight, 0 to 1, that the most specific matching range assigns to a media type of this version.
fn weight(accept: &str, kind: &str, subtype: &str, version: &str) -> f32 {
    let ranges = accept.split(',').filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let (of_kind, of_subtype) = parts.next()?.split_once('/')?;
        let mut specificity = match (of_kind, of_subtype) {
            ("*", "*") => 0,
            (it, "*") if it.eq_ignore_ascii_case(kind) => 1,
            (it, sub) if it.eq_ignore_ascii_case(kind) && sub.eq_ignore_ascii_case(subtype) => 2,
            _ => return None,
        };
        let mut weight = 1.0;
        for parameter in parts {
            let (name, value) = parameter.split_once('=')?;
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => weight = value.parse().ok().filter(|q| (0.0..=1.0).contains(q))?,
                "version" if value == version => specificity = 3,
                "version" => return None,
                _ => {}
            }
        }
        Some((specificity, weight))
    });
    let best = ranges.reduce(|best, range| if range.0 > best.0 { range } else { best });
    best.map_or(0.0, |(_, weight)| weight)
}

/// Converts OpenMetrics to the Prometheus format, which has no type `info` and whose counters have the suffix in the
/// family name too.
fn to_text(open_metrics: &str) -> String {
    let mut text = String::new();
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        let line = match line
            .strip_prefix("# HELP ")
            .and_then(|rest| rest.split_once(' '))
        {
            // The type is in the next line.
            Some((name, help)) => {
                let shape = lines.peek().and_then(|next| next.rsplit_once(' '));
                let suffix = suffix(shape.map_or("", |(_, shape)| shape));
                format!("# HELP {name}{suffix} {help}")
            }
            None => match line
                .strip_prefix("# TYPE ")
                .and_then(|rest| rest.split_once(' '))
            {
                Some((name, "info")) => format!("# TYPE {name}_info gauge"),
                Some((name, shape)) => format!("# TYPE {name}{} {shape}", suffix(shape)),
                // Neither units nor the end marker.
                None if line.starts_with('#') => continue,
                None => line.to_owned(),
            },
        };
        text += &line;
        text.push('\n');
    }
    text
}

/// The suffix of sample names of a type.
fn suffix(shape: &str) -> &'static str {
    match shape {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_range_with_the_highest_weight_is_preferred() {
        // As sent by Prometheus 2.42 and 3.0.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for accept in [
            prometheus,
            newer,
            "application/openmetrics-text",
            "Application/OpenMetrics-Text ; Version=\"1.0.0\" ; Q=0.9, text/plain;q=0.8",
            "application/*, text/plain;q=0.5",
            "*/*, text/plain;q=0.1",
            "text/plain;q=0, */*;q=0.5",
        ] {
            assert_eq!(Format::preferred(accept), Format::OpenMetrics, "{accept}");
        }
        for accept in [
            "",
            "*/*",
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "text/plain",
            "text/plain;version=0.0.4, application/openmetrics-text;q=0.9",
            "application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5",
            "application/openmetrics-text;q=0, */*",
            "application/openmetrics-text;q=2",
            "application/openmetrics-text;q",
            "application/openmetrics-text;version=1.0.0;q=0.4, text/plain;q=0.5",
            "openmetrics, /, ;q=1",
        ] {
            assert_eq!(Format::preferred(accept), Format::Text, "{accept}");
        }
    }

    #[test]
    fn the_prometheus_format_has_gauges_for_info_and_full_counter_names() {
        let page = "# HELP a_build Version of a\n# TYPE a_build info\na_build_info{version=\"1 # TYPE\"} 1\n\
            # HELP a_queries Queries taken\n# TYPE a_queries counter\na_queries_total 5\n\
            # HELP a_time_seconds Time\n# TYPE a_time_seconds histogram\n# UNIT a_time_seconds seconds\n\
            a_time_seconds_sum 1.5\n# EOF\n";
        let text = "# HELP a_build_info Version of a\n# TYPE a_build_info gauge\na_build_info{version=\"1 # TYPE\"} 1\n\
            # HELP a_queries_total Queries taken\n# TYPE a_queries_total counter\na_queries_total 5\n\
            # HELP a_time_seconds Time\n# TYPE a_time_seconds histogram\na_time_seconds_sum 1.5\n";
        assert_eq!(Format::Text.page(page.to_owned()), text);
        assert_eq!(Format::OpenMetrics.page(page.to_owned()), page);
    }
}
