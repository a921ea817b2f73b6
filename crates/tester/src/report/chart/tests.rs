use super::*;

fn names(axis: &Axis) -> Vec<&str> {
    axis.ticks.iter().map(|(_, name)| name.as_str()).collect()
}

/// From (0, 0) at the lower left (8, 320) to (10, 10) at the upper right (188, 8), without names.
fn square() -> Chart {
    let axis = || {
        let mut axis = Axis::linear("", (0.0, 10.0));
        axis.ticks.clear();
        axis
    };
    let mut chart = Chart::new((200.0, 400.0), axis(), axis());
    chart.shapes = Shapes::default();
    chart
}

#[test]
fn ticks_are_round_numbers() {
    let axis = Axis::from_zero("rate", [200.0, 87_000.0, 3.0]);
    assert_eq!(names(&axis), ["0", "20,000", "40,000", "60,000", "80,000"]);
    for nothing in [0.0, f64::INFINITY, f64::NAN] {
        let flat = Axis::from_zero("rate", [nothing]);
        assert_eq!(names(&flat), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }
    let part = Axis::linear("sent", (953.0, 1048.0));
    assert_eq!(names(&part), ["960", "980", "1,000", "1,020", "1,040"]);
}

#[test]
fn counts_have_no_ticks_at_fractions() {
    let axis = Axis::linear("cores", (0.0, 2.5)).whole();
    assert_eq!(names(&axis), ["0", "1", "2"]);
}

#[test]
fn decades_are_named_by_their_spans() {
    let axis = Axis::times("time", [9e6, 40_000.0]);
    assert_eq!(names(&axis), ["10 us", "100 us", "1 ms", "10 ms"]);
    assert!((axis.share(1e6) - 2.0 / 3.0).abs() < 1e-12);
    let near = Axis::times("time", [120_000.0, 900_000.0]);
    assert_eq!(names(&near), ["100 us", "200 us", "500 us", "1 ms"]);
    let one = Axis::times("time", [1000.0]);
    assert_eq!(names(&one), ["1 us", "2 us", "5 us", "10 us"]);
}

#[test]
fn each_nine_is_as_wide_as_the_one_before() {
    let axis = Axis::percentile("percentile", [50.0, 99.99, 100.0]);
    let expected = ["0", "50", "90", "99", "99.9", "99.99", "max"];
    assert_eq!(names(&axis), expected);
    let wide = |a, b| axis.share(b) - axis.share(a);
    assert!((wide(90.0, 99.0) - wide(99.0, 99.9)).abs() < 1e-9);
    assert!((axis.share(100.0) - 1.0).abs() < 1e-9);
}

#[test]
fn value_beyond_an_axis_is_drawn_at_its_end() {
    let mut chart = square();
    let beyond = [(-5.0, 5.0), (5.0, 1e300), (f64::INFINITY, -1.0)];
    chart.line(Role::MUTED, Stroke::Dashed, beyond);
    chart.bar(Role::variant(0), (70.0, 5.0));
    assert_eq!(
        chart.content(),
        "<path class=\"line muted\" stroke-dasharray=\"10 10\" d=\"M8 164L98 8L188 320h0\"/>\
         <path class=\"fill s1\" d=\"M8 152H188v24H8z\"/>"
    );
    let times = Axis::times("time", [1e3, 1e6]);
    assert!(times.share(0.0) == 0.0 && times.share(1e9) == 1.0);
}

#[test]
fn value_that_is_not_a_number_is_omitted() {
    let mut chart = square();
    let points = [(0.0, 0.0), (f64::NAN, 5.0), (5.0, f64::NAN), (10.0, 10.0)];
    chart.line(Role::variant(0), Stroke::THIN, points);
    chart.marks(Role::INK, Mark::LEVEL, points);
    chart.marks(Role::MUTED, Mark::LEVEL, [(f64::NAN, 1.0)]);
    chart.word((1.0, f64::NAN), 0.0, "nowhere");
    assert_eq!(
        chart.content(),
        "<path class=\"line s1\" d=\"M8 320L188 8h0\"/>\
         <path class=\"line ink\" d=\"M2 320h12M182 8h12\"/>"
    );
}

#[test]
fn whiskers_have_feet_across_them() {
    let mut chart = square();
    chart.whisker(Role::INK, Mark::LEVEL, [(5.0, 0.0), (5.0, 10.0)]);
    assert_eq!(
        chart.content(),
        "<path class=\"line ink\" d=\"M98 320L98 8h0\"/>\
         <path class=\"line ink\" d=\"M92 320h12M92 8h12\"/>"
    );
}

#[test]
fn a_variant_beyond_the_last_colour_has_another_shape() {
    let key = |index| serde_json::to_string(&Key::variant(index)).unwrap();
    assert!(key(0).contains("fill s1") && key(6).contains("fill s1"));
    assert_ne!(key(0), key(6));
}

#[test]
fn user_texts_are_escaped() {
    let hostile = "</svg><script>\"'&\u{1b}\u{ffff}ü";
    let safe = "&lt;/svg&gt;&lt;script&gt;&quot;&#39;&amp;\u{fffd}\u{fffd}ü";
    let mut chart = Chart::new(
        MEDIUM,
        Axis::linear(hostile, (0.0, 1.0)),
        Axis::linear(hostile, (0.0, 1.0)),
    );
    chart.word((0.5, 0.5), 0.0, hostile);
    let svg = chart.drawing().element(hostile);
    assert_eq!(svg.matches(&format!(">{safe}</text>")).count(), 3);
    assert!(svg.contains(&format!("aria-label=\"{safe}\">")));
    assert!(!svg.contains("<script"));
}

#[test]
fn names_fit_within_the_drawing() {
    let (x, y) = (Axis::from_zero("", [4e9]), Axis::from_zero("", [4e9]));
    let svg = Chart::new(MEDIUM, x, y).drawing().element("");
    let ends: Vec<f64> = svg
        .split("class=\"end muted\" x=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next()?.parse().ok())
        .collect();
    // In the usual fonts a digit is at most 0.64 times as wide as high, and "4,000,000,000" has ten.
    assert!(ends.len() > 3 && ends.iter().all(|end| *end > 10.0 * 0.64 * 24.0));
}

#[test]
fn pdf_has_the_operators_of_each_element() {
    let mut shapes = Shapes::default();
    let path = |data: &str| data.to_owned();
    let circle = path("M2 10a8 8 0 1 0 16 0a8 8 0 1 0-16 0z");
    shapes.path(Role::variant(0), Stroke::Fill, circle);
    shapes.path(Role::HEAT, Stroke::Shade(0), path("M1 1h-1z"));
    let mut inner = Shapes::default();
    let others = path("M0 5L9 6H8v-2h1l9-16-1 2");
    inner.path(Role::INK, Stroke::Dashed, others);
    let (at, word) = ((100.0, 50.0), "≥ 5 (µ)\u{1b}");
    inner.word(Role::MUTED, Anchor::End, at, Baseline::MIDDLE, word);
    shapes.group((8.0, 620.0), inner);
    let drawing = Drawing {
        size: MEDIUM,
        shapes,
    };
    let pdf = drawing.pdf_file();
    let (_, content) = pdf.split_once("stream\n").unwrap();
    let (content, _) = content.split_once("endstream").unwrap();
    assert_eq!(
        content,
        "0.25984 0 0 -0.25984 0 155.91 cm 1 J 1 j\n0.000 0.447 0.698 rg\n2.0 10.0 m\n\
         2.0 20.7 18.0 20.7 18.0 10.0 c\n18.0 -0.7 2.0 -0.7 2.0 10.0 c\nh\nf\n\
         1.000 1.000 1.000 rg\n1.0 1.0 m\n0.0 1.0 l\nh\nf\nq 1 0 0 1 8.0 620.0 cm\n\
         0.106 0.106 0.102 RG 2 w [10 10] 0 d\n0.0 5.0 m\n9.0 6.0 l\n8.0 6.0 l\n8.0 4.0 l\n\
         9.0 4.0 l\n18.0 -12.0 l\n17.0 -10.0 l\nS\n\
         BT 0.353 0.365 0.376 rg /F 24 Tf 1 0 0 -1 2.6 58.4 Tm (>= 5 \\050\\265\\051?) Tj ET\nQ\n"
    );
    assert!(pdf.contains(&format!("<</Length {}>>", content.len())));
    assert!(pdf.contains("/MediaBox[0 0 249.45 155.91]"), "88 mm wide");
}

#[test]
fn pdf_has_its_objects_where_its_table_says() {
    let pdf = square().drawing().pdf_file();
    let (_, table) = pdf.split_once("0000000000 65535 f \n").unwrap();
    for (line, number) in table.lines().take(5).zip(1..) {
        let at: usize = line.strip_suffix(" 00000 n ").unwrap().parse().unwrap();
        assert!(pdf[at..].starts_with(&format!("{number} 0 obj\n<<")));
    }
    let (_, at) = pdf.rsplit_once("startxref\n").unwrap();
    let at: usize = at.strip_suffix("\n%%EOF\n").unwrap().parse().unwrap();
    assert!(pdf[at..].starts_with("xref\n0 6\n"));
}

#[test]
fn a_file_has_its_colours_its_legend_and_its_caption_in_lines() {
    let (role, mark) = (Role::variant(0), Mark::variant(0, false));
    let legend = [(Key::variant(0), "a <server>".to_owned())];
    let caption = "a caption that is longer than one line of it";
    let mut chart = square();
    chart.marks(role, mark, [(5.0, 5.0)]);
    let file = chart.drawing().captioned(&legend, caption).svg_file();
    assert!(file.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"18mm\""));
    assert!(file.contains(".fill.s1,text.s1{fill:#0072b2}"));
    assert!(file.contains(">a &lt;server&gt;</text>"));
    assert!(file.contains(">a caption that</text>"), "{file}");
}
