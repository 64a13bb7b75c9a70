// SPDX-License-Identifier: Apache-2.0
package io.kvferry.multiconnector.composite;

/// Which child loads (`load_policy`).
public enum LoadPolicy {
    /// The first child, in order, that has anything: what vLLM does.
    FIRST_HIT("first-hit"),
    /// The child that has most.
    LONGEST_HIT("longest-hit"),
    /// Combines the children: each loads its own range of the prefix.
    COMPOSE("compose");

    private final String label;

    LoadPolicy(String label) {
        this.label = label;
    }

    String label() {
        return label;
    }

    static LoadPolicy of(String label) {
        for (var policy : values()) {
            if (policy.label.equals(label)) {
                return policy;
            }
        }
        throw new IllegalArgumentException("no load policy " + label);
    }
}
