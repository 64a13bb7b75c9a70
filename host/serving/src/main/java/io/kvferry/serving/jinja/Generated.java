// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.List;

/// The result of a Python generator: true even when empty, without a length, and exhausted after
/// one iteration.
final class Generated {
    private List<Object> elements;

    Generated(List<Object> elements) {
        this.elements = elements;
    }

    /// The remaining elements.
    List<Object> take() {
        var taken = elements;
        elements = List.of();
        return taken;
    }
}
