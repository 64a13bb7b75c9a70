// SPDX-License-Identifier: Apache-2.0
/// `kvferry demo`: prefill, decode and router as child processes, real prompts through them, every
/// generated token compared with a run that is not disaggregated.
@NullMarked
package io.kvferry.demo;

import org.jspecify.annotations.NullMarked;
