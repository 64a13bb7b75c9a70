// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

/// By what a request's instance is chosen.
///
/// @param beginning the first part of the prompt, for [RoutingPolicy#PREFIX]
/// @param tokens the whole prompt, for [RoutingPolicy#KV_EVENTS]; empty when not known
/// @param salt the tenant's: only blocks that were computed under it are of use
@SuppressWarnings("ArrayRecordComponent") // lives within one request
record Prompt(String beginning, int[] tokens, String salt) {
    private static final int[] UNKNOWN = {};

    /// A request without a prompt.
    static final Prompt NONE = of("");

    static Prompt of(String beginning) {
        return new Prompt(beginning, UNKNOWN, "");
    }
}
