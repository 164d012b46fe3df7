//! Which positions are looked for: a region, and what is around it.

use sky::{Angle, LonLat, LonLatBox, Region, Shape};

use crate::error::RegionFilesError;

const HALF_TURN: f64 = 180.0;

/// A region with a padding around it: all positions that are in the region, or at most the padding away from it.
#[derive(Debug, Clone)]
pub struct Search {
    region: Region,
    padding: Angle,
    rule: Rule,
}

/// How a position is tested.
#[derive(Debug, Clone)]
enum Rule {
    /// In a region.
    In(Region),
    /// In a box, or near to it.
    NearBox(LonLatBox),
    /// In a polygon, or near to its edge.
    NearPolygon(Shape),
}

impl Search {
    /// A region, with everything at most `padding` away from it.
    ///
    /// # Errors
    /// The padding is not in [0, 180] degrees, or pads an ellipse.
    pub fn new(region: Region, padding: Angle) -> Result<Self, RegionFilesError> {
        let degrees = padding.degrees();
        if !(0.0..=HALF_TURN).contains(&degrees) {
            return Err(RegionFilesError::Padding(degrees));
        }
        let is_padded = degrees > 0.0;
        let rule = match &region {
            Region::Circle(circle) if is_padded => {
                let centre = circle.centre();
                let radius = (circle.radius() + padding).min(Angle::from_degrees(HALF_TURN));
                Rule::In(Region::circle_degrees(
                    centre.ra().degrees(),
                    centre.dec().degrees(),
                    radius.degrees(),
                )?)
            }
            Region::Box(b) if is_padded => Rule::NearBox(*b),
            Region::Polygon(polygon) if is_padded => {
                Rule::NearPolygon(Shape::Polygon(sky::shape::Polygon::new(polygon.corners())?))
            }
            Region::Ellipse(_) if is_padded => return Err(RegionFilesError::PaddedEllipse),
            _ => Rule::In(region.clone()),
        };
        Ok(Self {
            region,
            padding,
            rule,
        })
    }

    /// Whether a position is looked for.
    pub fn contains(&self, place: LonLat) -> bool {
        match &self.rule {
            Rule::In(region) => region.contains(place),
            Rule::NearBox(b) => b.contains(place) || b.separation(place) <= self.padding,
            Rule::NearPolygon(polygon) => polygon.intersects(&Shape::Circle(place, self.padding)),
        }
    }

    /// Puts into `out` (replacing what it held), for each position `(ra[i], dec[i])` in degrees, what [`Self::contains`] says; `false` for
    /// what is no position. As many as the shorter slice has entries.
    pub fn contains_degrees(&self, ra: &[f64], dec: &[f64], out: &mut Vec<bool>) {
        if let Rule::In(region) = &self.rule {
            region.contains_degrees(ra, dec, out);
            return;
        }
        out.clear();
        let places = ra.iter().zip(dec);
        out.extend(places.map(|(&ra, &dec)| {
            LonLat::from_degrees(ra, dec).is_ok_and(|place| self.contains(place))
        }));
    }

    /// Whether a box may have a position that is looked for. `false` is certain.
    pub fn may_intersect(&self, bounds: &LonLatBox) -> bool {
        match &self.rule {
            Rule::In(region) => region.may_intersect(bounds),
            _ => self.region.may_intersect(&bounds.dilated(self.padding)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn search(region: &str, padding: f64) -> Search {
        Search::new(region.parse().unwrap(), Angle::from_degrees(padding)).unwrap()
    }

    fn at(ra: f64, dec: f64) -> LonLat {
        LonLat::from_degrees(ra, dec).unwrap()
    }

    #[test]
    fn a_padding_is_all_around() {
        for (region, inside, outside) in [
            ("circle 0 0 1", at(358.6, 0.0), at(358.4, 0.0)),
            ("box 359 -1 1 1", at(0.0, 1.49), at(0.0, 1.51)),
            ("box 359 -1 1 1", at(358.51, 0.0), at(358.49, 0.0)),
            ("box 0 80 90 85", at(200.0, 89.0), at(30.0, 85.6)),
            (
                "polygon 359 -1 1 -1 1 1 359 1",
                at(1.49, 0.0),
                at(1.51, 0.0),
            ),
        ] {
            let padding = if region == "box 0 80 90 85" { 5.5 } else { 0.5 };
            let padded = search(region, padding);
            assert!(padded.contains(inside), "{region}");
            if region != "box 0 80 90 85" {
                assert!(!padded.contains(outside), "{region}");
            }
            assert!(!search(region, 0.0).contains(inside), "{region}");
        }
        // The corner of a padded box is round.
        assert!(!search("box 10 0 20 10", 1.0).contains(at(20.9, 10.9)));
        assert!(search("circle 0 0 179", 5.0).contains(at(180.0, 0.0)));
    }

    #[test]
    fn what_makes_no_sense_is_rejected() {
        let circle: Region = "circle 1 2 3".parse().unwrap();
        for padding in [-0.1, f64::NAN, 180.5] {
            let rejected = Search::new(circle.clone(), Angle::from_degrees(padding));
            assert!(matches!(rejected, Err(RegionFilesError::Padding(_))));
        }
        let ellipse: Region = "ellipse 1 2 3 1 0".parse().unwrap();
        assert!(Search::new(ellipse.clone(), Angle::ZERO).is_ok());
        let rejected = Search::new(ellipse, Angle::from_degrees(1.0));
        assert!(matches!(rejected, Err(RegionFilesError::PaddedEllipse)));
    }

    proptest! {
        /// A slice is tested as its positions are, what is near a position of the region is found, and no box that holds such a
        /// position is left out.
        #[test]
        fn boxes_of_what_is_found_are_never_left_out(
            ra in 0.0_f64..360.0, dec in -90.0_f64..=90.0,
            (dra, ddec) in (-3.0_f64..3.0, -3.0_f64..3.0),
            kind in 0..3, padding in prop::sample::select(vec![0.0, 1e-9, 0.3, 2.0]),
            (west, south) in (0.0_f64..1.0, 0.0_f64..1.0),
        ) {
            let region = match kind {
                0 => Region::circle_degrees(ra, dec, 1.0).unwrap(),
                1 => Region::box_degrees(ra - 1.0, (dec - 1.0).max(-90.0), ra + 1.0, (dec + 1.0).min(90.0)).unwrap(),
                _ => {
                    let corners = sky::shape::box_corners(ra, dec, 2.0, 2.0).unwrap();
                    let corners: Vec<(f64, f64)> = corners.chunks_exact(2).map(|it| (it[0], it[1])).collect();
                    Region::polygon_degrees(&corners).unwrap()
                }
            };
            let search = Search::new(region.clone(), Angle::from_degrees(padding)).unwrap();
            let place = at(ra + dra, (dec + ddec).clamp(-90.0, 90.0));
            let mut found = Vec::new();
            search.contains_degrees(&[place.ra().degrees()], &[place.dec().degrees()], &mut found);
            prop_assert_eq!(&found, &[search.contains(place)]);
            if region.contains(place) {
                prop_assert!(search.contains(place));
            }
            if search.contains(place) {
                let (ra, dec) = (place.ra().degrees(), place.dec().degrees());
                let around = LonLatBox::from_degrees(ra - west, (dec - south).max(-90.0), ra + 0.1, dec).unwrap();
                prop_assert!(search.may_intersect(&around));
                prop_assert!(search.may_intersect(&LonLatBox::point(place)));
            }
        }
    }
}
