// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

import java.util.List;

/// What Python's generators give: true however empty, without a length, and empty once it was
/// iterated.
final class Generated {
    private List<Object> elements;

    Generated(List<Object> elements) {
        this.elements = elements;
    }

    /// All elements that nobody has taken.
    List<Object> take() {
        var taken = elements;
        elements = List.of();
        return taken;
    }
}
