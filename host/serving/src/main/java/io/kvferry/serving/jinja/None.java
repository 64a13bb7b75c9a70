// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.jinja;

/// Python's `None`.
enum None {
    NONE;

    @Override
    public String toString() {
        return "None";
    }
}
