//! Which report is which test.
//!
//! The reports are what bit people with fabio and its rivals, by number. Tests are named by their function, wherever in the
//! source they are; several are listed when one shows the rule and another the wire. The last column says what a report asks
//! that is not so, and why.
//!
//! | report | tests | not as asked |
//! | --- | --- | --- |
//! | R1 | r1_the_longer_pattern_wins_in_any_order, hosts_without_regard_to_case_and_patterns_after_names | |
//! | R2 | r2_an_exact_host_beats_a_pattern_in_every_rebuild | |
//! | R3 | r3_a_redirect_on_port_80_beside_the_service, plain_http_is_redirected_and_https_is_served | |
//! | R4 | a_host_with_a_port_falls_back_to_the_host_when_that_is_wanted | |
//! | R5 | r5_hosts_compare_without_case, hosts_without_regard_to_case_and_patterns_after_names | |
//! | R6 | r6_paths_without_case_only_with_iprefix, matchers | |
//! | R7 | matchers | no matcher per route: `proxy.matcher` is for all of them, as specified; `glob` takes `/` exactly |
//! | R8 | r8_the_longest_path_wins_and_hosts_go_first | |
//! | R9 | r9_stars_cross_slashes, matchers | |
//! | R10 | a_large_table_is_built_without_a_pause_and_logged_in_a_few_lines | times: `cargo bench --bench table` |
//! | R11 | r11_an_ipv6_host_is_no_list_of_characters | |
//! | R12 | the_target_uri_wins_over_host, absolute_form_wins_over_host | |
//! | R13 | r13_http_and_tcp_do_not_mix, http_requests_never_go_to_tcp_targets | |
//! | R14 | r14_everything_on_a_port, redirects | |
//! | R15 | r15_an_escape_in_a_rule_and_in_a_request_are_the_same, escapes_go_on_as_they_came_and_detours_are_resolved | double slashes and dot segments are resolved: ruling on the request path |
//! | R16 | strip_leaves_a_path_and_tells_the_prefix | |
//! | R17 | strip_holds_for_websockets | |
//! | R18 | strip_leaves_a_path_and_tells_the_prefix | |
//! | R19 | r19_strip_holds_for_redirects, redirects | |
//! | R20 | r20_no_loop_behind_a_balancer_that_ends_tls, redirects, a_redirect_to_itself_without_another_route_is_no_route | |
//! | R21 | r21_a_redirect_url_may_hold_commas, redirects, a_faulty_redirect_serves_nothing_and_is_shown | |
//! | R22 | r22_each_request_has_its_own_location, concurrent_redirects_do_not_mix | |
//! | R23 | r23_weight_from_a_tag | |
//! | R24 | r24_hundreds_of_instances_and_a_tiny_weight | |
//! | R25 | an_untouched_route_keeps_its_state, turns_go_on_over_changes_of_the_table | |
//! | R26 | r26_weight_0_drains, a_route_whose_targets_all_have_weight_0_is_unavailable, weight_0_is_never_chosen | |
//! | R27 | r27_a_total_is_shared | |
//! | R28 | r28_odd_weights, r28_odd_weights_starve_nobody | |
//! | R29 | r29_delete_by_tag_and_by_destination | |
//! | R30 | r30_options_belong_to_their_target, options_follow_the_chosen_instance, each_try_is_made_for_its_target, another_target_has_its_own_rules | |
//! | R31 | | a wish ("if built") that the specification does not take up |
//! | R32 | r32_one_bad_line_costs_itself, a_bad_override_costs_itself | |
//! | R33 | r33_white_space_around_and_inside, odd_services_harm_nobody | |
//! | R34 | r34_a_value_may_hold_equals_signs | |
//! | R35 | sources_of_tags | |
//! | R36 | r36_a_rule_cut_at_its_comma_is_a_service_tag, odd_services_harm_nobody | |
//! | R37 | r37_service_names_that_are_no_words, odd_services_harm_nobody | |
//! | R38 | r38_line_ends_comments_and_byte_order_mark, keys_below_the_overrides_are_read_in_order | |
//! | R39 | addresses_of_instances, a_target_with_an_ipv6_address_is_reached_and_one_with_a_zone_harms_nobody | |
//! | R40 | the_address_of_the_node_stands_in, who_is_in | |
//! | R41 | troubles_of_consul_are_none_of_the_traffic, an_agent_that_lost_everything_drops_nothing_that_comes_back, outages_leave_everything_as_it_is_and_changes_follow | |
//! | R42 | one_service_that_cannot_be_read_keeps_its_routes, troubles_of_consul_are_none_of_the_traffic | |
//! | R43 | index_rules, an_index_that_goes_backwards_starts_over, without_an_index_it_is_asked_once_a_second, troubles_of_consul_are_none_of_the_traffic | |
//! | R44 | troubles_of_consul_are_none_of_the_traffic, failures_are_logged_once_in_a_while | |
//! | R45 | a_large_table_is_built_without_a_pause_and_logged_in_a_few_lines, keys_below_the_overrides_are_read_in_order | times: `cargo bench --bench table` |
//! | R46 | another_node_with_the_same_id_is_another_instance, the_same_id_on_two_nodes_is_two_instances | |
//! | R47 | all_checks_or_one, odd_checks | |
//! | R48 | a_failing_node_takes_its_services_along | |
//! | R49 | warnings_count_only_where_they_are_accepted | |
//! | R50 | a_token_without_a_right_loses_nothing_and_floods_no_log, an_answer_that_the_acl_has_emptied_is_not_believed, lists_that_were_emptied_were_not_asked_for_again_until_something_changed | |
//! | R51 | consul_may_speak_tls_and_ask_for_a_certificate_which_may_be_replaced | |
//! | R52 | listeners_open_when_consul_has_come, without_consul_it_gives_up_after_the_timeout | with Consul down nothing starts, not even on overrides: they are in Consul (ruling on the first table) |
//! | R53 | the_namespace_is_asked_for_everywhere | Consul without namespaces refuses `ns`, it does not ignore it |
//! | R54 | slow_answers_do_not_pile_up | |
//! | R55 | overrides_that_come_late_are_waited_for_and_wipe_nothing | |
//! | R56 | a_large_table_is_built_without_a_pause_and_logged_in_a_few_lines, changes_are_not_logged_when_nobody_wants_it, huge_lists_take_a_shortcut, odd_services_harm_nobody | |
//! | R57 | it_registers_once_and_leaves_nothing_behind, a_start_that_fails_registers_nothing | |
//! | R58 | nothing_is_written_when_it_must_not_register | |
//! | R59 | leaving_under_load_fails_no_request, a_second_signal_ends_it_at_once, what_is_not_finished_in_time_is_cut | |
//! | R60 | other_signals_do_not_end_it, a_broken_stderr_is_no_concern_of_ours | |
//! | R61 | nobody_was_told_that_it_runs_as_root | |
//! | R62 | a_kept_connection_that_its_target_closes_costs_no_request, what_may_have_been_processed_is_not_sent_again, no_get_fails_while_one_instance_of_three_is_bad | |
//! | R63 | a_faulty_target_is_a_bad_gateway, an_instance_that_refuses_fails_no_request | |
//! | R64 | responses_without_a_body_have_none_and_keep_the_connection | |
//! | R65 | a_target_that_does_not_answer_in_time_is_a_gateway_timeout, times_of_a_route | |
//! | R66 | a_body_that_breaks_off_breaks_off_for_the_client_too, a_head_that_was_passed_on_is_not_taken_back | |
//! | R67 | a_service_that_fails_is_without_routes_as_in_fabio, a_route_whose_targets_all_have_weight_0_is_unavailable | an option; routes come from healthy instances alone, as in fabio; 503 when weights shut all of them out (ruling on 1.8.0) |
//! | R68 | listeners_cut_clients_that_dawdle_but_not_those_that_progress | |
//! | R69 | bodies_keep_their_framing | |
//! | R70 | the_limit_of_connections_is_about_idle_ones | |
//! | R71 | after_a_refused_upgrade_requests_are_routed_again, an_upgrade_with_lengths_in_its_answer_is_an_upgrade | |
//! | R72 | a_tunnel_outlives_the_time_limits_of_requests, a_handshake_without_an_answer_is_a_gateway_timeout, idle_ones_are_ended | |
//! | R73 | websockets_go_to_targets_with_tls, websockets_of_http2_targets_use_http1 | |
//! | R74 | forwarding_headers_of_an_upgrade_are_those_of_any_request, forwarding_headers | |
//! | R75 | what_comes_with_the_handshake_is_not_lost, what_was_read_before_goes_first | |
//! | R76 | every_piece_of_a_response_goes_on_at_once, compression_holds_nothing_back, a_conversation_goes_on_piece_by_piece | |
//! | R77 | what_a_client_accepts, what_is_compressed, what_the_head_says_afterwards, small_bodies_stay, codings_are_chosen_by_client_and_route | |
//! | R78 | a_compressed_response_is_logged_and_counted_as_it_was_sent | |
//! | R79 | chunks_of_any_size_pass_both_ways, bodies_keep_their_framing | |
//! | R80 | hosts_and_paths_decide | |
//! | R81 | messages_have_a_largest_size | |
//! | R82 | outcomes_of_our_own_are_statuses | no route is NOT_FOUND, as fabio |
//! | R83 | calls_are_finished_when_it_ends | |
//! | R84 | one_tls_port_serves_calls_and_pages | |
//! | R85 | all_kinds_of_calls_pass, requests_share_a_connection, nobody_is_upgraded_to_h2c | |
//! | R86 | floods_end_the_connection_and_cost_nobody_else | |
//! | R87 | the_tls_header_is_ours_alone | |
//! | R88 | forwarding_headers, a_client_ip_header_that_is_x_forwarded_for_loses_nothing | |
//! | R89 | forwarding_headers, ports | |
//! | R90 | forwarding_headers, the_host_that_a_target_sees | `Forwarded` is as fabio builds it, to the letter (ruling): nothing quoted, no new element |
//! | R91 | the_host_that_a_target_sees, host_dst_over_tls_asks_for_the_name_of_the_target | |
//! | R92 | names_and_values_stay_as_they_came | |
//! | R93 | access_rules_look_at_the_peer_and_at_everybody_before_it, every_element_of_forwarded_for_is_checked_by_the_caller, bad_rules_deny_everybody | |
//! | R94 | a_route_that_asks_for_an_unknown_scheme_is_closed, another_service_decides | the schemes have tests of their own in `src/auth` |
//! | R95 | markup_in_a_route_is_text_in_the_pages, nothing_configured_or_asked_for_becomes_markup | |
//! | R96 | nobody_writes_where_only_reading_is_allowed, only_our_own_pages_may_write | `rw` stays the default (ruling on admin), with a warning |
//! | R97 | strictmatch_refuses_with_an_alert, selection | |
//! | R98 | selection, an_address_in_a_certificate_serves_clients_without_a_name, an_address_without_a_name | |
//! | R99 | layouts, kinds_of_keys, a_directory_is_followed | |
//! | R100 | replaced_files_are_taken_up, a_directory_is_followed, swaps_disturb_no_handshake | |
//! | R101 | tokens_are_unwrapped_once_and_renewed_in_time, another_token_is_taken_up, secrets_of_both_versions | Vault is a stand-in that keeps its documented HTTP behaviour |
//! | R102 | a_name_is_issued_when_it_is_first_asked_for, what_is_used_is_renewed_and_what_expires_is_not_shown, host_names, waiting_for_vault_is_in_nobodys_way | |
//! | R103 | client_certificates, a_listed_client_is_no_authority, targets_are_told_who_the_client_is_and_never_by_the_client | |
//! | R104 | r104_targets_with_tls_are_verified_unless_their_route_says_otherwise, host_dst_over_tls_asks_for_the_name_of_the_target | |
//! | R105 | nothing_is_lost_byte_by_byte_and_in_two_records, the_name_is_found_in_real_hellos, a_client_hello_arrives_whole_however_it_was_cut | |
//! | R106 | names, who_says_nothing_or_names_nobody_is_closed, bytes_that_are_no_hello_are_given_back_and_ends_are_seen | |
//! | R107 | a_server_that_speaks_first_is_heard_at_once | |
//! | R108 | headers_are_read_and_nothing_behind_them, v1_lines, bad_headers_are_errors, the_client_of_a_proxy_header_is_the_one_that_counts | without `pxytrusted` headers are believed from everybody, as in fabio |
//! | R109 | a_half_closed_client_gets_its_answer_plain_and_through_tls, each_side_may_end_first_and_still_gets_its_answer, resets_are_passed_on | |
//! | R110 | idle_limits_of_listener_and_route, any_byte_in_any_direction_keeps_an_idle_limit_away | |
//! | R111 | ranges_of_ports_are_routed_each, dynamic_ports_come_and_go_and_connections_stay | |
//! | R112 | without_a_target_the_connection_is_closed | |
//! | R113 | the_log_tells_of_connections_and_of_tls_that_ended_here, every_end_is_heard_of_once | |
//! | R114 | a_connection_without_bytes_counts_no_bytes | |
//! | R115 | families_are_legal_names, templates_expand, statsd_raw_lines, label_values_and_help_are_escaped, tags_cannot_end_a_line_or_begin_another_tag | |
//! | R116 | every_family_to_the_letter, without_the_target_only_facts_about_the_process, many_targets_render_completely | |
//! | R117 | servers_that_are_not_there_are_no_reason_to_stop, graphite_lines_also_after_the_server_was_away | |
//! | R118 | everything_is_logged_if_asked_for, only_errors_are_logged_if_asked_for | no route, our own answers and ends of WebSockets with `log.access.all=true` only: fabio's lines by default (ruling on the access log) |
//! | R119 | peers_cannot_fill_the_log, what_was_left_out_is_counted_and_said_once | |
//! | R120 | a_file_is_opened_again_on_hangup_and_complete_at_the_end, a_file_that_has_grown_is_put_aside, syslog_messages, json_is_json_whatever_a_client_sends | |
//! | R121 | nothing_comes_from_elsewhere_and_nothing_is_markup_by_accident, pages_refer_only_to_what_is_served_here | |
//! | R122 | everything_but_health_is_below_the_base_path, the_pages_can_ask_for_a_password | |
//! | R123 | health_follows_the_first_table, health_says_why_not | |
//! | R124 | large_overrides_that_change_all_the_time_take_no_more_memory | 75 updates in the test; hours of churn: `scripts/soak` |
//! | R125 | one_change_in_a_large_table_is_a_few_lines_and_quick, nothing_is_asked_while_nothing_happens | shares of a core: `scripts/soak`, `scripts/change-cost` |
//! | R126 | no_text_panics, no_tag_panics, any_change, any_bytes, a_panic_is_counted, a_panic_is_a_result | a million inputs: `scripts/fuzz` |
//! | R127 | a_target_that_closes_every_connection_is_not_tried_for_ever, where_all_instances_fail_retries_do_not_pile_up | |
//! | R128 | what_may_have_been_processed_is_not_sent_again, posts_are_never_executed_twice, a_body_is_sent_again_if_it_was_kept | |
//! | R129 | interim_answers_do_not_take_the_place_of_the_answer | |
//! | R130 | trailers_go_both_ways, trailers_that_nobody_has_announced | |
//! | R131 | an_upgrade_with_lengths_in_its_answer_is_an_upgrade | |
//! | R132 | a_smuggled_request_is_never_seen_as_one | |
//! | R133 | lengths_that_are_none_or_several | |
//! | R134 | fields_and_chunks_that_are_malformed | valid chunk extensions are accepted and dropped (ruling) |
//! | R135 | hosts, a_host_with_a_colon_and_no_port_missed_its_routes | |
//! | R136 | methods | |
//! | R137 | websockets_go_over_a_stream | |
//! | R138 | nobody_is_upgraded_to_h2c, prior_knowledge_is_for_listeners_that_allow_it | |
//! | R139 | a_body_that_breaks_off_breaks_off_for_the_client_too | |
//! | R140 | limits_of_heads, a_faulty_target_is_a_bad_gateway | limits are 512 lines and 256 kB (ruling on heads) |
//! | R141 | floods_end_the_connection_and_cost_nobody_else, some_are_taken_and_a_flood_is_not, limits_on_streams_and_heads | |
//! | R142 | r142_there_is_no_way_around_a_rule, there_is_no_way_around_a_rule, escapes_go_on_as_they_came_and_detours_are_resolved | the cleaned path is matched, checked and forwarded (ruling on the request path); `//` is resolved |
//! | R143 | an_early_answer_reaches_a_client_that_still_uploads | |
//! | R144 | pipelined_requests_are_answered_in_order_by_their_targets, after_a_refused_upgrade_requests_are_routed_again | |
//! | R145 | an_address_that_changes_its_owner_gets_connections_of_its_own, an_address_that_moves_to_another_service_serves_that_one | |
//! | R146 | a_tunnel_outlives_the_time_limits_of_requests | |
//! | R147 | what_the_head_says_afterwards, codings_are_chosen_by_client_and_route | |
//! | R148 | nothing_is_added_that_was_not_there | |
//! | R149 | troubles_of_consul_are_none_of_the_traffic | |
//! | R150 | instances_that_come_and_go_lose_no_request | a partition: `scripts/acceptance`, outage `hung` |
//! | R151 | odd_services_harm_nobody | |
//! | R152 | null_unknown_and_absent_fields, odd_services_harm_nobody | |
//! | R153 | instances_that_come_and_go_lose_no_request | |
//! | R154 | troubles_of_consul_are_none_of_the_traffic, listeners_open_when_consul_has_come, a_token_without_a_right_loses_nothing_and_floods_no_log | |
//! | R155 | two_services_share_a_prefix, every_kind_of_change_is_seen_in_traffic, redirects, troubles_of_consul_are_none_of_the_traffic | |

use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn every_report_names_tests_that_exist() {
    let mut sources = String::new();
    let count = read(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").as_path(), &mut sources);
    assert!(count > 100, "only {count} source files seen");
    let rows: BTreeMap<u32, (Vec<&str>, &str)> = include_str!("reports.rs").lines().filter_map(row).collect();
    assert!((1..=155).eq(rows.keys().copied()), "a report is missing or foreign: {:?}", rows.keys());
    for (number, (tests, remark)) in rows {
        assert!(!tests.is_empty() || !remark.is_empty(), "R{number} has neither a test nor a reason");
        for test in tests {
            assert!(sources.contains(&format!("fn {test}(")), "R{number}: there is no test {test}");
        }
    }
}

fn row(line: &str) -> Option<(u32, (Vec<&str>, &str))> {
    let mut cells = line.strip_prefix("//! | R")?.strip_suffix('|')?.split('|').map(str::trim);
    let number = cells.next()?.parse().ok()?;
    let tests = cells.next()?.split(',').map(str::trim).filter(|test| !test.is_empty()).collect();
    Some((number, (tests, cells.next().unwrap_or_default())))
}

fn read(folder: &Path, into: &mut String) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            count += read(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *into += &std::fs::read_to_string(&path).expect("a source");
            count += 1;
        }
    }
    count
}
