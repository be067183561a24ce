-- Marks every job of some partitions as a training run, for `trainwarden slurm watch`: docs/plain-jobs.md.
-- slurm.conf: JobSubmitPlugins=lua, and this file beside it; where there is a job_submit.lua already, take the function.
-- The job has no id yet: %A and %a stand for those that it gets, %x for its name.

local partitions = { gpu = true }
local default_partition = "gpu"
local mark = "trainwarden:%x-%A_%a"

local function is_training(job)
    for name in string.gmatch(job.partition or default_partition, "[^,]+") do
        if partitions[name] then
            return true
        end
    end
    return false
end

function slurm_job_submit(job, _, _)
    local comment = job.comment or ""
    -- `find` without patterns: a mark that the user has set stays.
    if is_training(job) and not string.find(comment, "trainwarden:", 1, true) then
        job.comment = comment == "" and mark or comment .. " " .. mark
    end
    return slurm.SUCCESS
end

function slurm_job_modify(_, _, _, _)
    return slurm.SUCCESS
end

return slurm.SUCCESS
