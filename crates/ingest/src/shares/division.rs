//! How the files of a load are divided into shares.

/// How many files each share has, in their order: so many shares at most, each of about the same work, and none without a file.
pub(super) fn share_sizes(works: &[u64], most: usize) -> Vec<usize> {
    let shares = most.min(works.len()).max(1);
    let total: u128 = works.iter().map(|work| u128::from(*work)).sum();
    let mut sizes = vec![0; shares];
    let (mut share, mut done) = (0, 0u128);
    for (number, work) in works.iter().enumerate() {
        let left = works.len() - number;
        let is_full = done * shares as u128 >= total * (share as u128 + 1);
        let has_to_move = left <= shares - 1 - share;
        if sizes[share] > 0 && share + 1 < shares && (is_full || has_to_move) {
            share += 1;
        }
        sizes[share] += 1;
        done += u128::from(*work);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn files_are_shared_by_their_work() {
        assert_eq!(share_sizes(&[1, 1, 1, 1], 2), [2, 2]);
        assert_eq!(share_sizes(&[10, 1, 1], 2), [1, 2]);
        assert_eq!(share_sizes(&[1, 1, 10], 3), [1, 1, 1]);
        assert_eq!(share_sizes(&[5], 3), [1]);
    }

    proptest! {
        #[test]
        fn each_file_is_in_one_share(works in prop::collection::vec(0u64..50, 1..40), most in 1usize..9) {
            let sizes = share_sizes(&works, most);
            prop_assert_eq!(sizes.iter().sum::<usize>(), works.len());
            prop_assert_eq!(sizes.len(), most.min(works.len()));
            prop_assert!(sizes.iter().all(|size| *size > 0));
        }
    }
}
