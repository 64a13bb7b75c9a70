// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck;

import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;

/// Prints why a test was skipped: what the plugin does not claim, or what the machine lacks. Build
/// tools only count such tests. JUnit's launcher finds it wherever this jar is on the class path.
public final class SkipReasons implements TestExecutionListener {
    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        print(test, reason);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        if (result.getStatus() == TestExecutionResult.Status.ABORTED) {
            print(test, result.getThrowable().map(Throwable::getMessage).orElse("no reason given"));
        }
    }

    private static void print(TestIdentifier test, String reason) {
        System.out.println(
                "SKIPPED "
                        + test.getDisplayName()
                        + ": "
                        + reason.replaceFirst("^Assumption failed: ", ""));
    }
}
