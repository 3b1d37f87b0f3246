//! What every store must do, written against the ports.
//!
//! A store's `tests/conformance.rs` is one line: `twobox_testkit::store_conformance!(MyFixture);`. A change of
//! behaviour starts here.

pub mod claim;
pub mod claim_first;
pub mod dead_work;
pub mod dedup;
pub mod enqueue;
mod fixture;
pub mod inbox;
pub mod lanes;
pub mod ops_inbox;
pub mod ops_outbox;
pub mod ops_steer;
pub mod queue_handle;
pub mod queue_keys;
pub mod queue_wire;
pub mod replay;
pub mod settle;
pub mod sweep;
pub mod waiting;
mod worker;

pub use self::fixture::{HandlerScript, StoreFixture};

/// Stamps one named test per case of the suite for a [`StoreFixture`](crate::conformance::StoreFixture).
#[macro_export]
macro_rules! store_conformance {
    ($fixture:ty) => {
        $crate::conformance_cases! { $fixture;
            lanes: rf_01_committed_messages_are_read_in_order, rf_01_rolled_back_messages_do_not_exist,
                s5_a_lane_has_one_holder_and_tokens_grow, s5_a_stale_lease_writes_nothing,
                renewing_keeps_the_token, a_released_lane_is_free_at_once, l7_a_relay_takes_only_its_own_source,
                l6_a_destination_nobody_registers_becomes_unrouted, l6_registering_takes_a_lane_back,
                l6_a_new_destination_is_found_among_what_was_read_for_others,
                rf_14_a_relay_that_reaches_everything_takes_every_lane,
                s13_a_lease_from_a_clock_that_jumped_is_over,
                s13_l6_a_registration_from_a_clock_that_jumped_counts_from_now,
                l1_cursor_and_waiting_rows_move_together,
                l3_an_outage_is_shown_and_changes_nothing_else, a_commit_wakes_whoever_watches,
                s19_an_undecodable_row_hides_nothing, l7_reading_passes_over_other_destinations,
                reading_stops_at_its_limits, the_cursor_never_moves_back;
            waiting: rf_04_a_failed_message_is_due_after_its_delay, adr_05_a_scheduled_message_joins_when_due,
                l5_s13_what_joined_its_key_by_a_wrong_clock_leaves_it_again,
                s12_only_the_head_of_a_key_and_what_follows_it_is_due, s12_block_keeps_the_key_waiting,
                s12_step_over_lets_the_next_one_go, s12_fail_key_takes_the_rest_along,
                l5_order_survives_a_clock_that_steps_back, s13_no_message_is_parked_beyond_the_longest_delay,
                l6_expired_messages_are_due_at_once, s5_sent_is_final, held_keys_are_reported,
                s12_different_keys_do_not_wait_for_each_other, l5_scheduled_for_tomorrow_is_no_part_of_its_key,
                s18_a_look_reads_no_more_than_it_is_asked_for, a_key_follows_its_head_in_one_batch, l5_what_joins_later_comes_later,
                l5_what_joins_together_keeps_its_order, a_stale_lease_settles_no_waiting_row;
            replay: rf_05_dead_letters_are_listed_with_their_reason, l10_replay_keeps_id_and_place,
                l10_replay_under_a_new_id_goes_to_the_end, l10_callbacks_are_due_until_confirmed,
                s12_blocked_keys_are_listed_and_released, replay_is_bounded_and_filtered,
                dead_letters_are_paged,
                rf_05_dead_letters_are_counted_up_to_a_bound, rf_05_dead_letters_of_a_time_are_chosen,
                rf_05_l2_a_purged_message_is_gone, adr_07_s12_a_purged_head_lets_its_key_go_on,
                s18_purge_is_bounded_and_filtered, l10_another_death_is_not_the_one_that_was_meant,
                dead_letters_of_one_id_are_paged;
            inbox: rf_08_effect_once_and_the_stored_response_after, s3_the_key_is_consumer_source_and_id,
                s4_a_swallowed_sql_error_commits_nothing, s6_a_panic_is_a_failure,
                rf_08_a_failure_leaves_nothing_and_runs_again, a_rejection_is_stored_and_its_effects_are_not,
                l10_a_rejection_runs_again_under_a_higher_replay_number, s8_another_body_under_the_same_id_is_a_conflict,
                l4_a_failure_holds_its_key_and_nobody_else, s9_what_was_forgotten_is_refused_as_too_old,
                s9_a_message_from_the_future_is_refused_for_now, an_unknown_endpoint_leaves_no_row,
                w7_what_was_not_reached_is_said_so, rf_25_a_response_beyond_the_limit_is_rejected,
                rf_25_s16_responses_that_no_answer_has_room_for_are_not_kept,
                follow_ups_commit_with_the_effect, results_survive_a_reopening, one_bad_neighbour_spoils_nobody;
            sweep: rf_12_only_old_sent_messages_are_trimmed,
                s13_rf_12_what_a_clock_that_was_ahead_has_sent_is_trimmed, s18_sweeping_goes_in_small_batches,
                s9_purging_raises_the_watermark_with_it, s18_dead_letters_are_never_swept,
                s9_the_watermark_never_falls, l11_a_held_lane_pins_nobody_elses_log;
            dedup: ibx_002_ibx_003_ibx_004_seen_until_it_is_done, ibx_001_the_key_is_source_and_id,
                ibx_005_seen_again_is_noted, ibx_006_callers_at_once_leave_one_record,
                ibx_007_ibx_008_another_content_is_told, ibx_8_4_ibx_129_a_hash_keeps_its_algorithm,
                marks_apply_to_what_is_open, ibx_8_2_dead_by_hand_is_a_dead_letter,
                processed_by_hand_is_not_claimed, records_survive_a_reopening;
            claim_first: ceb_1_ceb_6_one_of_many_wins, ceb_1_ceb_6_duplicates_are_skipped,
                ceb_2_ceb_6_a_claim_is_released_or_kept, ceb_2_a_kept_claim_that_failed_is_a_dead_letter,
                ceb_3_a_claim_says_who_what_and_when, ceb_2_what_nobody_finished_is_visible_and_released_by_age,
                s5_ceb_2_a_released_claim_settles_nothing, ceb_2_releasing_never_touches_the_queue, ceb_2_age_counts_from_the_beginning_of_the_work,
                ceb_5_ceb_6_cleanup_keeps_what_is_not_done;
            enqueue: ibx_013_ibx_027_a_new_message_is_durable_and_untried, ibx_025_ibx_026_when_it_was_seen,
                ibx_014_queued_again_is_one_message, ibx_001_another_source_is_another_message,
                ibx_019_ibx_022_ibx_118_any_payload_is_carried, ibx_020_ibx_021_topics_are_what_they_are,
                ibx_023_ibx_024_not_before_it_is_due, ibx_028_done_is_not_queued_again,
                ibx_029_seen_and_waiting_messages_are_updated, ibx_029_an_update_is_no_way_around_the_back_off,
                ibx_029_a_leased_message_is_left_alone, ibx_029_s5_an_update_ends_a_lease_that_is_over,
                ibx_029_a_dead_message_is_updated_and_stays_dead, ibx_129_the_hash_is_made_for_the_caller,
                l5_an_update_to_later_leaves_the_key, a_queued_message_wakes_whoever_watches,
                ibx_119_ibx_120_recommended_sizes_work;
            claim: ibx_034_ibx_035_ibx_036_a_claim_is_a_lease, ibx_037_ibx_039_as_many_as_asked_for,
                ibx_039_the_longest_due_come_first_scheduled_or_not, ibx_033_ibx_106_a_lease_is_exclusive,
                ibx_030_ibx_103_ibx_106_workers_at_once_share_the_messages,
                ibx_031_ibx_038_only_open_messages_are_claimed, ibx_032_ibx_042_the_back_off_is_kept,
                s6_ibx_083_a_crashed_worker_is_an_attempt, s5_a_lease_of_an_earlier_claim_settles_nothing,
                ibx_8_3_expired_messages_are_set_aside, s18_a_claim_buries_a_little_at_a_time,
                s19_an_undecodable_message_is_a_dead_letter, s13_a_clock_that_jumps_back_parks_nothing,
                s13_s18_what_was_parked_comes_back_in_parts, s13_what_was_scheduled_stays_scheduled,
                ibx_082_ibx_084_the_policy_can_be_chosen;
            settle: ibx_044_ibx_047_ibx_049_acknowledged_is_done,
                ibx_046_ibx_055_ibx_063_strangers_settle_nothing, ibx_048_ibx_059_ibx_066_nothing_is_a_no_op,
                ibx_050_ibx_051_ibx_056_ibx_057_abandoned_comes_back,
                ibx_052_ibx_080_ibx_081_ibx_083_the_default_back_off, ibx_053_ibx_058_a_delay_of_ones_own,
                ibx_060_ibx_061_ibx_064_ibx_065_failed_is_dead, what_is_given_back_is_not_charged,
                a_lease_is_prolonged, ibx_068_ibx_069_ibx_070_reaped_messages_come_back,
                ibx_071_ibx_083_reaping_touches_only_leases, s18_reaping_is_bounded,
                ibx_044_ibx_050_ibx_060_many_are_settled_in_one_call, s5_a_lease_settles_once;
            queue_keys: ibx_8_1_s12_only_the_head_is_claimed, ibx_8_1_other_keys_do_not_wait,
                ibx_8_1_s12_a_retry_holds_its_key, ibx_8_1_s12_block_waits_for_a_replay,
                ibx_8_1_s12_a_blocked_key_is_released, ibx_8_2_a_purged_head_blocks_nobody,
                ibx_8_1_s12_step_over_goes_on, ibx_8_1_s12_fail_key_takes_the_rest_along,
                ibx_8_3_s12_an_expired_head_counts_as_dead, l5_a_scheduled_message_joins_when_it_is_due,
                l5_scheduled_messages_of_a_free_key_come_one_by_one, l5_what_never_joined_does_not_fail_its_key,
                s12_s6_a_head_that_kills_its_workers_ends, s12_handling_moves_the_key,
                s12_marks_by_hand_move_the_key;
            dead_work: ibx_8_2_dead_letters_are_listed, ibx_8_2_dead_letters_are_filtered,
                ibx_8_2_dead_letters_are_paged, ibx_8_2_dead_letters_are_replayed, ibx_8_2_a_replay_can_die_again,
                ibx_8_2_only_the_deaths_that_are_meant_are_replayed_or_purged,
                ibx_8_2_purged_is_gone_and_still_recognised,
                ibx_8_2_ibx_029_a_dead_letter_that_gets_its_content_later_can_be_replayed,
                ibx_098_ibx_099_ibx_100_only_old_done_messages_are_swept, ibx_101_sweeping_goes_in_small_batches,
                s18_messages_of_one_date_are_swept_in_small_batches,
                s9_a_scheduled_message_is_remembered_after_it_was_done,
                s9_scheduled_work_that_ends_early_makes_nobody_forget;
            queue_handle: s3_ibx_044_effect_and_done_commit_together, ibx_051_ibx_052_a_retry_leaves_no_effect,
                rf_04_a_handler_may_ask_for_more_patience_and_not_for_less,
                ibx_060_ibx_061_a_rejection_is_a_dead_letter, ibx_083_the_last_attempt_is_the_last,
                s4_s6_panics_and_swallowed_errors_are_failures, s4_a_spoilt_transaction_is_an_attempt,
                s5_ibx_045_without_the_lease_there_is_no_effect, s5_a_late_worker_without_a_rival_is_in_time,
                one_bad_neighbour_spoils_no_other, rf_25_a_response_beyond_the_limit_is_a_dead_letter,
                s1_follow_ups_commit_with_the_effect_of_queued_messages,
                ibx_105_ibx_106_workers_at_once_have_each_effect_once;
            queue_wire: adr_04_stored_first_and_handled_later,
                l4_l5_what_is_delivered_is_not_put_off_for_a_clock_that_is_behind, adr_04_rf_08_a_duplicate_is_one_in_every_state,
                s8_another_body_of_a_queued_message_is_a_conflict, s9_queued_messages_have_a_date_as_well,
                s9_ibx_099_what_waits_is_never_forgotten, s12_deliveries_of_a_key_keep_their_order,
                s6_a_queued_message_dies_here, adr_04_a_delivery_wakes_the_workers;
            ops_outbox: s18_rf_22_outbox_counters_follow_every_message,
                s18_rf_22_outbox_counters_know_what_was_removed,
                rf_22_pending_messages_are_counted_per_destination, rf_22_a_long_backlog_is_counted_up_to_a_bound,
                rf_22_the_outbox_is_listed_in_pages, rf_22_the_outbox_is_searched,
                s18_rf_22_a_search_looks_at_a_bounded_number_of_rows,
                rf_22_a_search_by_date_finds_what_waits_in_a_gap_of_the_log,
                rf_22_a_page_that_ends_at_a_waiting_message_does_not_hide_it,
                adr_09_rf_22_a_message_of_the_outbox_is_shown,
                rf_22_dead_letters_are_paged_with_tokens;
            ops_inbox: s18_rf_22_inbox_counters_follow_deliveries, s18_rf_22_inbox_counters_follow_the_queue,
                s18_rf_22_inbox_counters_follow_claims_and_marks, rf_22_the_inbox_is_listed_and_searched,
                s18_rf_22_a_search_of_the_inbox_is_bounded, rf_22_a_message_of_the_inbox_is_shown,
                s12_rf_22_blocked_keys_of_the_inbox_are_listed,
                rf_22_dead_letters_of_the_inbox_are_paged_with_tokens;
            ops_steer: rf_22_a_paused_lane_stays_paused_until_it_is_resumed,
                rf_22_a_destination_without_a_lane_can_be_paused, rf_22_pausing_wakes_whoever_watches,
                rf_22_actions_leave_a_trail, s17_rf_22_a_trail_is_no_place_to_keep_things_in,
                s18_the_trail_is_swept_by_age;
        }
    };
}

/// Used by [`store_conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($fixture:ty; $($module:ident: $($case:ident),+;)+) => {$(
        mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $case() {
                    $crate::conformance::$module::$case::<$fixture>().await;
                }
            )+
        }
    )+};
}
