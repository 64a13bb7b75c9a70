// SPDX-License-Identifier: Apache-2.0
package io.kvferry.tck.faults;

import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

import java.util.List;
import java.util.stream.Stream;

/// The contract of KV connectors finds broken ones: each mutant fails the test that is there for
/// its defect, which the connector without the defect passes.
class KvMutantsTest {
    private static final List<Mutation> CASES =
            List.of(
                    new Mutation(KvMutants.CompletesTwice.class, "everyRankReportsALoadOnce"),
                    new Mutation(KvClaimMutants.SignalsNothing.class, "everyRankReportsALoadOnce"),
                    new Mutation(KvMutants.HitsBeyondThePrompt.class, "staysWithinThePrompt"),
                    new Mutation(
                            KvMutants.IgnoresAlignment.class, "hitsAreWholeBlocksOrReachTheEnd"),
                    new Mutation(KvMutants.ChangesItsMind.class, "repeatedLookupsLeaveNoState"),
                    new Mutation(KvMutants.NeverAnswersRevocations.class, "abortsLeakNothing"),
                    new Mutation(KvMutants.LosesFailures.class, "damagedPayloadsAreNoticed"),
                    new Mutation(
                            KvMutants.NeverLearnsOfFailures.class,
                            "brokenPromisesAreNotRepeatedForEver"),
                    new Mutation(
                            KvBlockMutants.WritesIntoAnyBlock.class,
                            "blocksWithoutALoadAreNotTouched"),
                    new Mutation(
                            KvBlockMutants.WritesIntoAnyBlock.class, "releasedBlocksAreLeftAlone"),
                    new Mutation(KvBlockMutants.WritesAfterARevocation.class, "abortsLeakNothing"),
                    new Mutation(
                            KvBlockMutants.LoadsWhatWasRevoked.class,
                            "loadsRevokedBeforeTheirPlanNeverStart"),
                    new Mutation(
                            KvBlockMutants.SavesAStepLate.class, "laterContentsNeverReachTheStore"),
                    new Mutation(KvMutants.RepeatsItsPlan.class, "plansDrain"),
                    new Mutation(
                            KvMutants.KeepsViews.class, "buildingAPlanChangesNothingOfTheEngine"),
                    new Mutation(KvMutants.SharesItsSchedulerHalf.class, "enginesShareNoState"),
                    new Mutation(
                            KvClaimMutants.ClaimsWhatItCannot.class, "resetMakesEverythingAMiss"),
                    new Mutation(
                            KvClaimMutants.AnnouncesLate.class, "resetMakesWhatIsBeingSavedAMiss"),
                    new Mutation(KvClaimMutants.HidesWhatItDoes.class, "eventsTellWhatCanBeLoaded"),
                    new Mutation(KvMutants.LeaksAThread.class, "closingEndsEverything"),
                    new Mutation(KvMutants.IsNeverClosed.class, "closingIsOverWhenItReturns"),
                    new Mutation(
                            KvMutants.SaysClosedWhileItWrites.class, "closingIsOverWhenItReturns"),
                    new Mutation(
                            KvBlockMutants.SyncLoadsComeLate.class,
                            "synchronousLoadsAreInPlaceInTime"),
                    new Mutation(
                            KvBlockMutants.SavesBehindFailedLoads.class,
                            "blocksBehindAFailedLoadAreNotStored"),
                    new Mutation(
                            KvBlockMutants.SavesBehindFailedLoads.class,
                            "whatRestsOnALoadThatFailedElsewhereIsNotStored"),
                    new Mutation(
                            KvBlockMutants.SavesBehindFailedLoads.class,
                            "aFailedBlockOfAWindowVoidsTheHit"),
                    new Mutation(
                            KvBlockMutants.NamesOneGroupOnly.class,
                            "aFailedLoadNamesTheBlocksOfEveryGroup"),
                    new Mutation(
                            KvBlockMutants.TakesDeviceMemory.class,
                            "deviceRegionsAreRefusedUnlessClaimed"),
                    new Mutation(
                            KvBlockMutants.SavesWhatWasNotComputed.class,
                            "failedForwardPassesStoreNothing"),
                    new Mutation(
                            KvBlockMutants.SavesWhatWasNotComputed.class,
                            "onlyWhatWasNotComputedIsKeptOutOfTheStore"),
                    new Mutation(
                            KvBlockMutants.DropsAllSavesOfSuchAStep.class,
                            "onlyWhatWasNotComputedIsKeptOutOfTheStore"),
                    new Mutation(KvClaimMutants.SharesAStaticField.class, "halvesShareNothing"),
                    new Mutation(
                            KvClaimMutants.TakesLayersAtTheEnd.class,
                            "layersAreTakenBeforeTheStepHasEnded"),
                    new Mutation(
                            KvClaimMutants.QueuesWithoutBound.class,
                            "backPressureRefusesAndRecovers"),
                    new Mutation(
                            KvClaimMutants.RefusesForEver.class, "backPressureRefusesAndRecovers"),
                    new Mutation(KvClaimMutants.ClaimsLeases.class, "leasesAreTakenWhereClaimed"),
                    new Mutation(
                            KvClaimMutants.ClaimsHandshakes.class,
                            "handshakesAreExchangedWhereClaimed"),
                    new Mutation(
                            KvClaimMutants.HidesHandshakes.class,
                            "handshakesAreExchangedWhereClaimed"),
                    new Mutation(KvClaimMutants.HidesItsStore.class, "blocksAreFoundAsClaimed"),
                    new Mutation(
                            KvBlockMutants.FreesTheCacheTooSoon.class,
                            "providedMemoryOutlivesTheHalf"),
                    new Mutation(
                            KvShapeMutants.CountsLayersFromZero.class,
                            "pipelineStagesWorkWhereClaimed"),
                    new Mutation(
                            KvBlockMutants.ForgetsWindows.class, "recurrentStateWorksWhereClaimed"),
                    new Mutation(
                            KvBlockMutants.SavesBehindFailedLoads.class,
                            "aFailedBlockOfAStateVoidsTheHit"),
                    new Mutation(
                            KvShapeMutants.TakesOtherSizesForItsOwn.class,
                            "otherTensorParallelSizesWorkOrFailCleanly"),
                    new Mutation(
                            KvBlockMutants.ForgetsWindows.class, "slidingWindowsWorkOrAreRefused"));

    @TestFactory
    Stream<DynamicTest> everyMutantFailsItsTest() {
        return Mutation.areFound(KvMutants.None.class, CASES);
    }
}
