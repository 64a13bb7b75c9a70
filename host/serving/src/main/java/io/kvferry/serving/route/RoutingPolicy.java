// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

/// Which of the working instances of a role gets a request.
public enum RoutingPolicy {
    /// One after the other.
    ROUND_ROBIN,
    /// The one with the fewest requests under way.
    LEAST_LOADED,
    /// The one that requests with the same beginning went to before, by rendezvous hashing over the
    /// first part of the prompt, unless it has a quarter more requests under way than the others.
    PREFIX,
    /// The one that has the longest part of the prompt in its prefix cache, by its KV events; as
    /// [#PREFIX] where none has any of it.
    KV_EVENTS
}
