// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import java.io.IOException;

/// One leg of a request did not work; another instance may.
final class LegException extends IOException {
    private static final long serialVersionUID = 1L;

    private final boolean started;

    /// @param started whether the instance may have seen the request
    LegException(String message, boolean started) {
        super(message);
        this.started = started;
    }

    boolean started() {
        return started;
    }
}
