// SPDX-License-Identifier: Apache-2.0
package io.kvferry.serving.cli;

import io.kvferry.spi.ErrorCode;

/// Exit codes of the process, for scripts; `kvferry --help` lists them.
final class ExitCode {
    /// Done.
    static final int OK = 0;

    /// It ran, and the result is bad: a token differs, something needed is missing.
    static final int BAD_RESULT = 1;

    /// The command line or a configuration is wrong; the same call will fail again.
    static final int USAGE = 2;

    /// It could not be done: I/O, a peer, the platform, a defect.
    static final int FAILED = 3;

    /// Ended by a signal, as a shell says it for SIGINT.
    static final int INTERRUPTED = 130;

    private ExitCode() {}

    static int of(ErrorCode code) {
        return switch (code.category()) {
            case USAGE, CONFIG, INCOMPATIBLE -> USAGE;
            case PEER, TRANSPORT, STORAGE, RESOURCE, CORRUPT, INTERNAL -> FAILED;
        };
    }
}
