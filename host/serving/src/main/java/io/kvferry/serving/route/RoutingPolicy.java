// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

/// Which of the working instances of a role gets a request.
public enum RoutingPolicy {
    /// One after the other.
    ROUND_ROBIN,
    /// The one with the fewest requests under way.
    LEAST_LOADED,
    /// The instance that earlier requests with the same beginning went to, by rendezvous hashing
    /// over the first part of the prompt, unless it has a quarter more requests in progress than
    /// the others.
    PREFIX,
    /// The instance with the longest part of the prompt in its prefix cache, according to its KV
    /// events; as [#PREFIX] if no instance has any of it.
    KV_EVENTS
}
