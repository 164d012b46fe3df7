//! Flux, magnitude and counts, with their errors.
//!
//! AB magnitudes are `m = -2.5 log10(flux) - 48.6` with the flux in erg/s/cm²/Hz (Oke & Gunn 1983, ApJ 266, 713); a flux of
//! one nanojansky is 1e-32 erg/s/cm²/Hz. Errors are first-order propagation. A flux that is not positive has no magnitude:
//! the result is NULL.

use std::f64::consts::{LN_10, LOG10_E};
use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

use super::aliases;
use super::formula::Formula;

/// Magnitudes for one unit of relative error: 2.5 / ln 10.
const MAG_PER_RELATIVE_ERROR: f64 = 2.5 * LOG10_E;
/// AB zero point for a flux in erg/s/cm²/Hz.
const AB_ZERO_POINT: f64 = 48.6;
/// One nanojansky in erg/s/cm²/Hz.
const NANOJANSKY: f64 = 1e-32;

fn ab_mag(flux: f64) -> f64 {
    if flux > 0.0 {
        -2.5 * flux.log10() - AB_ZERO_POINT
    } else {
        f64::NAN
    }
}

fn ab_flux(mag: f64) -> f64 {
    10f64.powf(-0.4 * (mag + AB_ZERO_POINT))
}

fn mag_sigma(flux: f64, flux_sigma: f64) -> f64 {
    if flux > 0.0 {
        MAG_PER_RELATIVE_ERROR * flux_sigma / flux
    } else {
        f64::NAN
    }
}

fn flux_sigma(mag: f64, mag_sigma: f64) -> f64 {
    ab_flux(mag) * mag_sigma * LN_10 / 2.5
}

/// Relative errors of `a / b` or `a · b` added in quadrature.
fn relative(a: f64, a_sigma: f64, b: f64, b_sigma: f64) -> f64 {
    (a_sigma / a).hypot(b_sigma / b)
}

/// Flux of an object with magnitude zero, as counts are calibrated: flux = dn / flux_mag_0 · ab_flux(0).
fn dn_to_flux(dn: f64, flux_mag_0: f64) -> f64 {
    dn / flux_mag_0 * ab_flux(0.0)
}

fn flux_to_dn(flux: f64, flux_mag_0: f64) -> f64 {
    flux / ab_flux(0.0) * flux_mag_0
}

/// Functions of one flux that give its magnitude: -2.5 log10 of it, times a constant, less a constant.
const MAGNITUDES_OF_FLUX: &[&str] = &["scisql_fluxtoabmag", "scisql_nanojanskytoabmag"];

/// Whether the function of this name gives the magnitude of its one argument, a flux, and NULL where that is not positive.
/// Two of these, applied to different fluxes, differ by -2.5 log10 of the fluxes' ratio.
pub fn is_magnitude_of_flux(name: &str) -> bool {
    MAGNITUDES_OF_FLUX.contains(&name)
}

const FORMULAS: &[Formula] = &[
    Formula {
        name: "fluxtoabmag",
        arity: 1,
        of: |a| ab_mag(a[0]),
    },
    Formula {
        name: "fluxtoabmagsigma",
        arity: 2,
        of: |a| mag_sigma(a[0], a[1]),
    },
    Formula {
        name: "abmagtoflux",
        arity: 1,
        of: |a| ab_flux(a[0]),
    },
    Formula {
        name: "abmagtofluxsigma",
        arity: 2,
        of: |a| flux_sigma(a[0], a[1]),
    },
    Formula {
        name: "nanojanskytoabmag",
        arity: 1,
        of: |a| ab_mag(a[0] * NANOJANSKY),
    },
    Formula {
        name: "nanojanskytoabmagsigma",
        arity: 2,
        of: |a| mag_sigma(a[0], a[1]),
    },
    Formula {
        name: "abmagtonanojansky",
        arity: 1,
        of: |a| ab_flux(a[0]) / NANOJANSKY,
    },
    Formula {
        name: "abmagtonanojanskysigma",
        arity: 2,
        of: |a| flux_sigma(a[0], a[1]) / NANOJANSKY,
    },
    Formula {
        name: "dntoflux",
        arity: 2,
        of: |a| dn_to_flux(a[0], a[1]),
    },
    Formula {
        name: "dntofluxsigma",
        arity: 4,
        of: |a| dn_to_flux(a[0], a[2]).abs() * relative(a[0], a[1], a[2], a[3]),
    },
    Formula {
        name: "dntoabmag",
        arity: 2,
        of: |a| ab_mag(dn_to_flux(a[0], a[1])),
    },
    Formula {
        name: "dntoabmagsigma",
        arity: 4,
        of: |a| MAG_PER_RELATIVE_ERROR * relative(a[0], a[1], a[2], a[3]),
    },
    Formula {
        name: "fluxtodn",
        arity: 2,
        of: |a| flux_to_dn(a[0], a[1]),
    },
    Formula {
        name: "fluxtodnsigma",
        arity: 4,
        of: |a| flux_to_dn(a[0], a[2]).abs() * relative(a[0], a[1], a[2], a[3]),
    },
    Formula {
        name: "abmagtodn",
        arity: 2,
        of: |a| flux_to_dn(ab_flux(a[0]), a[1]),
    },
    Formula {
        name: "abmagtodnsigma",
        arity: 4,
        of: |a| {
            flux_to_dn(ab_flux(a[0]), a[2]).abs()
                * relative(1.0, a[1] / MAG_PER_RELATIVE_ERROR, a[2], a[3])
        },
    },
];

/// The photometry functions.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    FORMULAS
        .iter()
        .map(|formula| {
            formula.udf(
                format!("scisql_{}", formula.name),
                aliases(formula.name, &[]),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Float64Array};

    use super::*;
    use crate::functions::formula::evaluate;

    fn of(name: &str, args: &[f64]) -> f64 {
        let formula = FORMULAS.iter().find(|f| f.name == name).unwrap();
        assert_eq!(formula.arity, args.len());
        (formula.of)(args)
    }

    #[test]
    fn magnitudes_and_fluxes_are_inverse() {
        for mag in [-5.0, 0.0, 14.2, 31.4] {
            assert!((of("fluxtoabmag", &[of("abmagtoflux", &[mag])]) - mag).abs() < 1e-12);
            assert!(
                (of("nanojanskytoabmag", &[of("abmagtonanojansky", &[mag])]) - mag).abs() < 1e-12
            );
            assert!((of("dntoabmag", &[of("abmagtodn", &[mag, 1e12]), 1e12]) - mag).abs() < 1e-12);
        }
        // 3631 Jy is magnitude zero, by the definition of the system, to the digits of 48.6.
        assert!(of("fluxtoabmag", &[3631e-23]).abs() < 1e-4);
        assert!(of("fluxtoabmag", &[0.0]).is_nan() && of("fluxtoabmag", &[-1.0]).is_nan());
    }

    #[test]
    fn errors_are_the_derivatives() {
        let (mag, step) = (21.3, 1e-6);
        let flux = of("abmagtoflux", &[mag]);
        let difference = (flux - of("abmagtoflux", &[mag + step])) / step;
        assert!((of("abmagtofluxsigma", &[mag, 1.0]) / difference - 1.0).abs() < 1e-5);
        assert!((of("fluxtoabmagsigma", &[flux, difference * step]) / step - 1.0).abs() < 1e-5);
        assert!((of("fluxtoabmagsigma", &[1.0, 1.0]) - 1.085_736_204_758_129_6).abs() < 1e-15);
    }

    #[test]
    fn nulls_and_bad_values_give_null() {
        let flux = Float64Array::from(vec![Some(1e-30), None, Some(-1.0)]);
        let sigma = Float64Array::from(vec![Some(1e-31), Some(1.0), Some(1.0)]);
        let formula = FORMULAS
            .iter()
            .find(|f| f.name == "fluxtoabmagsigma")
            .unwrap();
        let result = evaluate(formula, &[&flux, &sigma]);
        assert_eq!(
            (result.is_null(0), result.is_null(1), result.is_null(2)),
            (false, true, true)
        );
    }
}
