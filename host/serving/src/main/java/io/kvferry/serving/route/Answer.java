// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.route;

import io.kvferry.serving.http.HttpCall;

import java.io.IOException;

/// A whole response of an instance, as it came.
@SuppressWarnings("ArrayRecordComponent") // lives within one request
record Answer(int status, String contentType, byte[] body) {
    /// Whether a retry at another instance may succeed: this one was busy, or what it depends on
    /// failed. A 500 may be caused by the request itself, a 504 has spent the time.
    boolean mayRetry() {
        return isBusy() || status == 502;
    }

    boolean isBusy() {
        return status == 429 || status == 503;
    }

    void relayTo(HttpCall call) throws IOException {
        call.respond(status, contentType, body);
    }
}
