//! redis-benchmark's throughput at depths between those that were measured.

/// Points of depth and commands a second, by depth.
pub(super) struct Curve(Vec<(f64, f64)>);

impl Curve {
    pub(super) fn new(mut points: Vec<(f64, f64)>) -> Self {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Self(points)
    }

    /// Commands a second at a depth: on the line between its neighbours, and at the ends the ends themselves.
    pub(super) fn at(&self, depth: f64) -> f64 {
        let after = self.0.partition_point(|(point, _)| *point < depth);
        match (
            after.checked_sub(1).map(|before| self.0[before]),
            self.0.get(after),
        ) {
            (Some((x1, y1)), Some((x2, y2))) => y1 + (y2 - y1) * (depth - x1) / (x2 - x1),
            (Some((_, y)), None) | (None, Some(&(_, y))) => y,
            (None, None) => f64::NAN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_between_points_lie_on_the_line() {
        let curve = Curve::new(vec![(4.0, 300.0), (1.0, 100.0), (2.0, 200.0)]);
        for (depth, expected) in [
            (1.0, 100.0),
            (1.5, 150.0),
            (3.0, 250.0),
            (0.5, 100.0),
            (9.0, 300.0),
            (2.0, 200.0),
        ] {
            assert_eq!(curve.at(depth), expected, "{depth}");
        }
    }
}
