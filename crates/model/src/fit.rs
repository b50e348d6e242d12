//! Least squares on logarithms: fits, errors, and leave-one-out.
//!
//! Rates span three decades, and a tenth too much is as wrong at 1 GB/s as at 200: so the residual is the
//! logarithm of predicted over measured. It goes through a soft absolute value, which is a square near
//! zero and grows like |r| beyond [`SOFT_SCALE`]: published tables have rows in which something else went
//! wrong, and a plain square would bend the whole curve towards those. Parameters are positive and are
//! searched as logarithms.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};
use serde::Serialize;

/// Where residuals stop counting squared: 5 %, twice the noise of LFS12's IOR table.
const SOFT_SCALE: f64 = 0.05;

/// Step of the differences that stand for derivatives, in logarithms of parameters.
const STEP: f64 = 1e-6;

/// A form that predicts a point from parameters.
pub trait Form<P> {
    /// The measured rate of a point.
    fn measured(&self, point: &P) -> f64;
    /// The rate that the form gives it.
    fn predicted(&self, parameters: &[f64], point: &P) -> f64;
    /// Where the search begins; how many parameters there are.
    fn start(&self) -> Vec<f64>;
}

/// The residual whose square is the soft absolute value of `r`; written so that small `r` lose nothing.
fn soften(r: f64) -> f64 {
    let z = (r / SOFT_SCALE).powi(2);
    r * (2.0 / ((1.0 + z).sqrt() + 1.0)).sqrt()
}

struct Search<'a, P, F> {
    form: &'a F,
    points: &'a [P],
    logs: DVector<f64>,
}

impl<P, F: Form<P>> Search<'_, P, F> {
    fn residuals_at(&self, logs: &DVector<f64>) -> DVector<f64> {
        let parameters: Vec<f64> = logs.iter().map(|log| log.exp()).collect();
        DVector::from_iterator(
            self.points.len(),
            self.points.iter().map(|point| {
                let predicted = self.form.predicted(&parameters, point);
                soften((predicted / self.form.measured(point)).ln())
            }),
        )
    }
}

impl<P, F: Form<P>> LeastSquaresProblem<f64, Dyn, Dyn> for Search<'_, P, F> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, logs: &DVector<f64>) {
        self.logs.copy_from(logs);
    }

    fn params(&self) -> DVector<f64> {
        self.logs.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        Some(self.residuals_at(&self.logs))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        let columns: Vec<DVector<f64>> = (0..self.logs.len())
            .map(|index| {
                let moved = |by: f64| {
                    let mut logs = self.logs.clone();
                    if let Some(log) = logs.get_mut(index) {
                        *log += by;
                    }
                    self.residuals_at(&logs)
                };
                (moved(STEP) - moved(-STEP)) / (2.0 * STEP)
            })
            .collect();
        Some(DMatrix::from_columns(&columns))
    }
}

/// The parameters with which the form comes nearest to the points.
pub fn fit<P>(form: &impl Form<P>, points: &[P]) -> anyhow::Result<Vec<f64>> {
    let start = form.start();
    ensure!(
        points.len() >= start.len(),
        "{} points cannot settle {} parameters",
        points.len(),
        start.len()
    );
    let logs = DVector::from_iterator(start.len(), start.iter().map(|value| value.ln()));
    let search = Search { form, points, logs };
    let (found, how) = LevenbergMarquardt::new().minimize(search);
    ensure!(how.termination.was_successful(), "the fit did not settle: {:?}", how.termination);
    let parameters: Vec<f64> = found.logs.iter().map(|log| log.exp()).collect();
    ensure!(parameters.iter().all(|value| value.is_finite()), "the fit ran away: {parameters:?}");
    Ok(parameters)
}

/// How far the form is off at each point, as a share of what was measured; above zero is too much.
pub fn errors<P>(form: &impl Form<P>, parameters: &[f64], points: &[P]) -> Vec<f64> {
    points
        .iter()
        .map(|point| form.predicted(parameters, point) / form.measured(point) - 1.0)
        .collect()
}

/// The errors of points that the fit had not seen: each configuration in turn is left out, all its points
/// together, since points of one configuration resemble each other.
pub fn leave_one_out<P: Clone, K: Ord>(
    form: &impl Form<P>,
    points: &[P],
    configuration: impl Fn(&P) -> K,
) -> anyhow::Result<Vec<f64>> {
    let mut all = Vec::with_capacity(points.len());
    let configurations: BTreeSet<K> = points.iter().map(&configuration).collect();
    for left_out in configurations {
        let (unseen, seen): (Vec<P>, Vec<P>) =
            points.iter().cloned().partition(|point| configuration(point) == left_out);
        let parameters = fit(form, &seen).context("with one configuration left out")?;
        all.extend(errors(form, &parameters, &unseen));
    }
    Ok(all)
}

/// What is said of many errors; all are sizes, without sign.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// How many points.
    pub points: usize,
    /// Half of the points are nearer.
    pub median: f64,
    /// Nine of ten points are nearer.
    pub p90: f64,
    /// The farthest.
    pub worst: f64,
}

impl Summary {
    /// Of signed errors.
    pub fn of(errors: &[f64]) -> Self {
        let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        Self {
            points: sizes.len(),
            median: quantile(&sizes, 0.5),
            p90: quantile(&sizes, 0.9),
            worst: quantile(&sizes, 1.0),
        }
    }
}

/// A quantile of sorted values, between two of them in proportion.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * sorted.len().saturating_sub(1) as f64;
    let at = |index: f64| sorted.get(index as usize).copied().unwrap_or(f64::NAN);
    let (low, high) = (at(place.floor()), at(place.ceil()));
    low + (high - low) * place.fract()
}

/// The parameter at a place; not a number where there is none, which no fit survives.
pub(crate) fn at(parameters: &[f64], place: usize) -> f64 {
    parameters.get(place).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Power;

    impl Form<(f64, f64)> for Power {
        fn measured(&self, point: &(f64, f64)) -> f64 {
            point.1
        }
        fn predicted(&self, parameters: &[f64], point: &(f64, f64)) -> f64 {
            at(parameters, 0) * point.0.powf(at(parameters, 1))
        }
        fn start(&self) -> Vec<f64> {
            vec![1.0, 1.0]
        }
    }

    fn points() -> Vec<(f64, f64)> {
        (1..20).map(|x| (f64::from(x), 7.0 * f64::from(x).powf(0.6))).collect()
    }

    #[test]
    fn what_was_planted_is_found() {
        let found = fit(&Power, &points()).unwrap();
        assert!((found[0] - 7.0).abs() < 1e-6 && (found[1] - 0.6).abs() < 1e-6, "{found:?}");
        let unseen = leave_one_out(&Power, &points(), |point| point.0 as u32).unwrap();
        assert_eq!(unseen.len(), 19);
        assert!(Summary::of(&unseen).worst < 1e-6);
    }

    #[test]
    fn one_wild_point_does_not_bend_the_curve() {
        let mut wild = points();
        wild[10].1 *= 3.0;
        let found = fit(&Power, &wild).unwrap();
        let errors = errors(&Power, &found, &points());
        assert!(Summary::of(&errors).worst < 0.02, "{errors:?}");
        // A point that the fit has not seen keeps its error.
        let unseen = leave_one_out(&Power, &wild, |point| point.0 as u32).unwrap();
        assert!((Summary::of(&unseen).worst - 2.0 / 3.0).abs() < 0.01);
    }

    #[test]
    fn too_few_points_are_refused() {
        let refusal = fit(&Power, &points()[..1]).unwrap_err().to_string();
        assert!(refusal.contains("1 points") && refusal.contains("2 parameters"), "{refusal}");
    }

    #[test]
    fn softening_keeps_sign_and_small_residuals() {
        assert!((soften(1e-9) / 1e-9 - 1.0).abs() < 1e-12);
        assert!((soften(-0.3) + soften(0.3)).abs() < 1e-15);
        assert!(soften(0.3) < 0.3 && soften(0.3) > soften(0.2));
        // Its square is the soft absolute value itself.
        let (r, c) = (0.2_f64, SOFT_SCALE);
        let rho = 2.0 * c * c * ((1.0 + r * r / (c * c)).sqrt() - 1.0);
        assert!((soften(r).powi(2) - rho).abs() < 1e-12);
    }

    #[test]
    fn quantiles_lie_between_values() {
        let summary = Summary::of(&[-0.3, 0.1, 0.2, 0.0]);
        assert_eq!(summary.points, 4);
        assert!((summary.median - 0.15).abs() < 1e-12);
        assert!((summary.worst - 0.3).abs() < 1e-12);
        assert!(Summary::of(&[]).median.is_nan());
    }
}
