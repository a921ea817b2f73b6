//! Rates over cores, over the delay of the authority, and over the working set.

use super::grouped;
use crate::authority::behaviour::Behaviour;
use crate::campaign::plan::Varied;
use crate::namespace::{Pattern, Share};
use crate::report::campaign::analysis::{Analysis, Curve, Over, PointResult, VariantInfo};

/// A point on a curve: what the curve is over, what is the same for its points, the value, and the point.
type OnCurve = ((Over, (usize, String)), (f64, usize));

/// All curves of two values or more.
pub(super) fn curves(analysis: &Analysis) -> Vec<Curve> {
    let variants = analysis.variants.iter().enumerate();
    let of_variants = |over| {
        let variants = variants.clone();
        variants.filter_map(move |(variant, info)| of_variant(analysis, over, variant, info))
    };
    let sets = analysis.points.iter();
    let sets = sets.filter_map(|point| of_set(analysis, point));
    let places = of_variants(Over::Cores).chain(of_variants(Over::DelayMs));
    let curve = |((over, (_, of)), mut rows): (_, Vec<(f64, usize)>)| {
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let several = rows.first()?.0 < rows.last()?.0;
        several.then_some(Curve { over, of, rows })
    };
    let curves = grouped(places.chain(sets)).into_iter();
    curves.filter_map(curve).collect()
}

/// A variant by its cores, or by the delay of the authority behind it if that has no other fault.
fn of_variant(
    analysis: &Analysis,
    over: Over,
    variant: usize,
    info: &VariantInfo,
) -> Option<OnCurve> {
    let planned = &info.planned;
    let (value, varied) = match over {
        Over::Cores => {
            let cores = planned.cpus().cpus().len();
            (Some(cores as f64).filter(|_| cores > 0), Varied::Cores)
        }
        _ => {
            let behaviour = planned.behaviour().filter(|_| !info.is_authority());
            let delay_ns = behaviour.and_then(Behaviour::only_delay_ns);
            (delay_ns.map(|ns| ns as f64 / 1e6), Varied::Behaviour)
        }
    };
    let point = analysis.points_of(variant).next()?;
    point.median()?;
    Some(((over, planned.without(&[varied])), (value?, point.point)))
}

/// A point whose queries all repeat the names of a set equally often.
fn of_set(analysis: &Analysis, point: &PointResult) -> Option<OnCurve> {
    let cell = &point.planned.cell;
    let (order, names) = match cell.pattern {
        Pattern::StackDistance { names } => ("in order", names),
        Pattern::Zipf {
            names,
            exponent_milli: 0,
        } => ("at random", names),
        _ => return None,
    };
    point.median().filter(|_| cell.cached_share == Share::ALL)?;
    let of = format!("{}, {order}", analysis.name_of(point.variant));
    Some((
        (Over::Names, (point.variant, of)),
        (names as f64, point.point),
    ))
}
